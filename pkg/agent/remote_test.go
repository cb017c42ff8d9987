package agent

import (
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// What a node tells of its failure comes back, as far as it is told, on another one.
func TestFailureTravels(t *testing.T) {
	now := time.Unix(1000, 0)
	f := failure(3, 990, procs.Exit{Signal: syscall.SIGSEGV})
	f.GlobalRank = 11
	told := f.forOthers(now)
	want := rdzv.Failure{
		Host: "node1", GlobalRank: 11, LocalRank: 3, PID: 1003, Signal: syscall.SIGSEGV, Grade: crashed, Age: 10 * time.Second,
		Text: "Signal 11 (SIGSEGV) received by PID 1003",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	later := now.Add(time.Hour) // by a clock that has nothing to do with the first
	back := rootCause(&told, nil, later)
	if !back.same(f) || !back.Time.Equal(later.Add(-10*time.Second)) || back.Exit.ShellCode() != 139 || back.Text != told.Text {
		t.Errorf("came back as %+v", back)
	}
	if f.Time = now.Add(time.Minute); f.forOthers(now).Age != 0 { // an error file may tell any time
		t.Error("a failure in the future")
	}
	if rootCause(nil, map[int]Failure{11: f}, now) != nil {
		t.Error("a root cause that nobody told")
	}
}

func TestLastBytes(t *testing.T) {
	for _, tt := range []struct{ name, s, want string }{
		{"it fits", "0123456789abcdef", "0123456789abcdef"},
		{"whole lines", "first line\nsecond\nthird", "[...]\nthird"},
		{"one long line", strings.Repeat("x", 40) + "0123456789", "[...]\n0123456789"},
		{"the line end is the last byte", strings.Repeat("x", 40) + "012345678\n", "[...]\n012345678\n"},
		{"bytes that are no text", "a\xffb", "a?b"},
	} {
		if got := lastBytes(tt.s, 16); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune("aé€😀\n")))).Draw(t, "s")
		limit := rapid.IntRange(16, 64).Draw(t, "limit")
		got := lastBytes(s, limit)
		end, cut := strings.CutPrefix(got, "[...]\n")
		if len(got) > limit || !utf8.ValidString(got) || !strings.HasSuffix(s, end) {
			t.Fatalf("%q", got)
		}
		if !cut && got != s || len(s) > limit && end == "" {
			t.Fatalf("%q is not the end of %q", got, s)
		}
	})
}
