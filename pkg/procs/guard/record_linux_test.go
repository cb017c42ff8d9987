package guard

import (
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// The last record counts, however the agent ends, until it is removed.
func TestRecord(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		records []string
		want    string
	}{
		{[]string{"first", "last, which is longer"}, "record last, which is longer\n"},
		{[]string{"first, which is longer", "last"}, "record last\n"},
		{[]string{"first", ""}, ""},
		{nil, ""},
	} {
		for _, args := range [][]string{nil, {"nested"}} {
			j := startGuarded(t, args...)
			for _, r := range tt.records {
				j.want(strings.TrimSpace("record "+r), "ok")
			}
			j.signalAgent(syscall.SIGKILL)
			j.ends(137)
			if got := j.stderr.String(); got != tt.want {
				t.Errorf("%q: the guard has %q, want %q", tt.records, got, tt.want)
			}
		}
	}
}

// A kill in the middle of a write leaves a whole record or none.
func TestKillWhileRecordIsWritten(t *testing.T) {
	t.Parallel()
	whole := regexp.MustCompile(`^(record (a+|b+|c+|d+|e+|f+|g+|h+|i+|j+|k+|l+|m+|n+|o+|p+|q+|r+|s+|t+|u+|v+|w+|x+|y+|z+)\n)?$`)
	for range testenv.Repeat(t, 3, 100) {
		j := startGuarded(t)
		j.want("records", "ok")
		j.signalAgent(syscall.SIGKILL)
		j.ends(137)
		if got := j.stderr.String(); !whole.MatchString(got) {
			t.Errorf("the guard has %q", got)
		}
	}
}

// A record that was not written to its end counts as none.
func TestTornRecord(t *testing.T) {
	t.Parallel()
	fd := newRecordFile()
	if fd < 0 {
		t.Fatal("no file")
	}
	l := &Lifeline{record: fd}
	defer func() { _ = unix.Close(fd) }()
	if got := readRecord(fd); got != nil {
		t.Errorf("a new file has %q", got)
	}
	for _, r := range []string{"a", strings.Repeat("b", MaxRecord)} {
		if err := l.SetRecord([]byte(r)); err != nil {
			t.Fatal(err)
		}
		if got := readRecord(fd); string(got) != r {
			t.Errorf("set %q, got %q", r, got)
		}
	}
	if _, err := unix.Pwrite(fd, []byte("c"), 9); err != nil {
		t.Fatal(err)
	}
	if got := readRecord(fd); got != nil {
		t.Errorf("a torn record is %q", got)
	}
	if err := l.SetRecord(make([]byte, MaxRecord+1)); err == nil {
		t.Error("a record that is too long was stored")
	}
	if readRecord(-1) != nil || (&Lifeline{record: -1}).SetRecord(nil) == nil {
		t.Error("there is a record without a file")
	}
}
