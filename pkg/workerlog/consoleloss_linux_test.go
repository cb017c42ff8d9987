package workerlog

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fullDevice accepts no byte, like a full disk.
func fullDevice(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Bytes that find no space are counted, a notice stands where they are missing once there is space again, and the
// console continues.
func TestConsoleWithoutRoom(t *testing.T) {
	out := newFile(t)
	c := NewConsole(out, out)
	w := c.writer(Stdout)
	put(t, w, text("A:", "1", false))
	room := c.stdout.file
	c.stdout.file = fullDevice(t)
	put(t, w, text("A:", "23\n", true))
	put(t, w, text("A:", "4\n", false))
	if diff := cmp.Diff([]Lost{{"stdout", 7, syscall.ENOSPC}}, c.Lost()); diff != "" {
		t.Errorf("lost (-want +got):\n%s", diff)
	}
	c.stdout.file = room
	put(t, w, text("A:", "5\n", false))
	if err := c.Err(); err != nil {
		t.Error(err)
	}
	want := "A:1\nelasticrun: 7 bytes of output are missing here: no space left on device\nA:5\n"
	if diff := cmp.Diff(want, readFile(t, out.Name())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := c.ReportLost(0); err != nil {
		t.Errorf("reported twice: %v", err)
	}
}

// At the end the other side reports the loss, and the last text goes to the side that has space.
func TestConsoleEndsWithoutRoom(t *testing.T) {
	for _, tt := range []struct {
		name       string
		out, err   bool // has room
		want, fail string
	}{
		{"both", true, true, "out:A:1\nerr:last\n", ""},
		{"stderr alone", false, true, "out:err:elasticrun: 4 bytes of stdout were lost: no space left on device\nlast\n", ""},
		{"stdout alone", true, false, "out:A:1\nelasticrun: 4 bytes of stderr were lost: no space left on device\nlast\nerr:", ""},
		{"neither", false, false, "out:err:", "4 bytes of stdout were lost: no space left on device\n4 bytes of stderr were lost: no space left on device"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := newFile(t), newFile(t)
			c := NewConsole(out, err)
			if !tt.out {
				c.stdout.file = fullDevice(t)
			}
			if !tt.err {
				c.stderr.file = fullDevice(t)
			}
			put(t, c.writer(Stdout), text("A:", "1\n", false))
			if !tt.err {
				put(t, c.writer(Stderr), text("E:", "1\n", false))
			}
			said := ""
			if err := c.ReportLost(time.Millisecond); err != nil {
				said = err.Error()
			}
			c.Finish("last\n", time.Millisecond)
			if diff := cmp.Diff(tt.fail, said); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, "out:"+readFile(t, out.Name())+"err:"+readFile(t, err.Name())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A reader that has gone is not a lack of space.
func TestConsoleLosesNothingToAGoneReader(t *testing.T) {
	read, write := newPipe(t)
	read.Close()
	c := NewConsole(write, write)
	defer c.Close()
	put(t, c.writer(Stdout), text("A:", "1\n", false))
	c.Finish(strings.Repeat("x", 10), time.Hour)
	if err := c.ReportLost(time.Hour); err != nil || len(c.Lost()) > 0 {
		t.Errorf("%v, %v", c.Lost(), err)
	}
}
