package proctree

import (
	"fmt"
	"testing"
)

func TestEndingBy(t *testing.T) {
	for _, tt := range []struct {
		name, state  string
		flags        int
		threads      int
		sigPnd, shPn string
		want         bool
	}{
		{"it runs", "R", 0x400000, 3, "0000000000000000", "0000000000000000", false},
		{"it exits", "R", 0x400004, 3, "0000000000000000", "0000000000000000", true},
		{"it dumps its core", "D", 0x400200, 3, "0000000000000000", "0000000000000000", true},
		{"a signal ends it", "R", 0x400400, 3, "0000000000000000", "0000000000000000", true},
		{"SIGKILL is pending", "R", 0x400000, 3, "0000000000000000", "0000000000000100", true},
		{"its first thread has it pending", "S", 0x400000, 3, "0000000000000100", "0000000000000000", true},
		{"SIGTERM is pending", "S", 0x400000, 3, "0000000000004000", "0000000000004000", false},
		{"only its first thread has ended", "Z", 0x40000c, 3, "0000000000000000", "0000000000000000", false},
		{"a signal has ended its first thread, and ends the others", "Z", 0x40040c, 3, "0000000000000000", "0000000000000000", true},
		{"it has ended", "Z", 0x40000c, 1, "0000000000000000", "0000000000000000", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stat := fmt.Sprintf(
				"42 (a ) R 4) %s 1 42 42 0 -1 %d 0 0 0 0 0 0 0 0 20 0 %d 0 777 0 0",
				tt.state,
				tt.flags,
				tt.threads,
			)
			status := fmt.Sprintf(
				"Name:\tx\nSigQ:\t0/1\nSigPnd:\t%s\nShdPnd:\t%s\nSigBlk:\t0000000000000100\n",
				tt.sigPnd,
				tt.shPn,
			)
			if got := endingBy([]byte(stat), []byte(status)); got != tt.want {
				t.Errorf("%v", got)
			}
		})
	}
	if endingBy([]byte("no stat"), nil) {
		t.Error("nothing is known, and it ends")
	}
}
