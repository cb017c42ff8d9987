package agent

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// scanAll passes pieces of a stream to a finder, and returns the last step, or "none".
func scanAll(pattern string, pieces ...string) string {
	f := newStepFinder(regexp.MustCompile(pattern))
	s := f.stream()
	for _, piece := range pieces {
		s.Scan([]byte(piece), time.Time{})
	}
	step, ok := f.last()
	if !ok {
		return "none"
	}
	return fmt.Sprint(step)
}

func TestSteps(t *testing.T) {
	long := strings.Repeat("x", maxStepLine)
	for _, tt := range []struct {
		name, pattern string
		pieces        []string
		want          string
	}{
		{"a group", `step (\d+)`, []string{"step 7 of 9\n"}, "7"},
		{"no group", `\d+`, []string{"step 7 of 9\n"}, "7"},
		{"the last line", `step (\d+)`, []string{"step 7\nstep 8\nloss 1\n"}, "8"},
		{"a smaller step", `step (\d+)`, []string{"step 7\n", "step 2\n"}, "2"},
		{"an unfinished line", `step (\d+)`, []string{"step 7\nstep 1"}, "7"},
		{"a line in pieces", `step (\d+)`, []string{"loss\nst", "ep ", "12\nloss"}, "12"},
		{"a progress bar", `(\d+)/100`, []string{"\r 7/100", "\r 8/100\r"}, "8"},
		{"no match", `step (\d+)`, []string{"loss 1\n"}, "none"},
		{"no number", `step (\w+)`, []string{"step one\n"}, "none"},
		{"a group that is not there", `step( \d+)?`, []string{"step\n"}, "none"},
		{"spaces", `step(\s*\d+)`, []string{"step   7\n"}, "7"},
		{"too large a number", `step (\d+)`, []string{"step 99999999999999999999\n"}, "none"},
		{"at the end of a long line", `step (\d+)`, []string{long, long, "step 7\nstep 8\n"}, "8"},
		{"only at the end of a long line", `step (\d+)`, []string{long, "step 7\n"}, "none"},
		{"only at the end of a long line at once", `step (\d+)`, []string{"\n" + long + "step 7\n"}, "none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := scanAll(tt.pattern, tt.pieces...); got != tt.want {
				t.Errorf("step %s, want %s", got, tt.want)
			}
		})
	}
}

// TestStepsInPieces checks that it makes no difference how a stream is cut.
func TestStepsInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("s12\r\n "))).Draw(t, "text")
		var pieces []string
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if whole, cut := scanAll(`s(\d)`, text), scanAll(`s(\d)`, pieces...); whole != cut {
			t.Fatalf("%q at once: %s, as %q: %s", text, whole, pieces, cut)
		}
	})
}
