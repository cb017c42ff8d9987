package filetimer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// record is a request as torch's client writes it.
func record(pid int, scope string, expires float64, signal int) string {
	return fmt.Sprintf(`{"version": 1, "pid": %d, "scope_id": %q, "expiration_time": %v, "signal": %d}`,
		pid, scope, expires, signal)
}

func TestParseLine(t *testing.T) {
	valid := record(7, "train.py#3", 1700000000.25, 9)
	want := request{7, "train.py#3", 1700000000.25, syscall.SIGKILL}
	const (
		broken  = "it is not a JSON object with the fields of a timer"
		missing = "one of pid, scope_id, expiration_time and signal is missing"
		torn    = "its beginning is a part of another request"
	)
	for _, tt := range []struct {
		name, line string
		want       request
		problem    string
	}{
		{name: "a timer", line: valid, want: want},
		{name: "a release", line: record(7, "s", -1, 0), want: request{7, "s", -1, 0}},
		{name: "no signal", line: record(7, "s", 5, -3), want: request{7, "s", 5, 0}},
		{name: "other fields", line: `{"new": [1], ` + valid[1:], want: want},
		{
			name: "never", line: `{"version": 1, "pid": 7, "scope_id": "s", "expiration_time": Infinity, "signal": 9}`,
			want: request{7, "s", 1e300, 9},
		},
		{name: "a part of another one first", line: valid[:20] + valid, want: want, problem: torn},
		{name: "a scope like a request", line: record(7, `{"pid`, 5, 9), want: request{7, `{"pid`, 5, 9}},
		{name: "empty", problem: broken},
		{name: "no JSON", line: "hello", problem: broken},
		{name: "a part", line: valid[:40], problem: broken},
		{name: "two", line: valid + valid, want: want, problem: torn},
		{name: "text for a number", line: strings.Replace(valid, "7", `"7"`, 1), problem: broken},
		{name: "a fraction for a pid", line: strings.Replace(valid, "7", "7.5", 1), problem: broken},
		{name: "null", line: "null", problem: missing},
		{name: "without a signal", line: strings.Replace(valid, "signal", "sig", 1), problem: missing},
		{name: "a process group", line: record(-7, "s", 5, 9), problem: "pid -7 is not that of a process"},
		{name: "pid 0", line: record(0, "s", 5, 9), problem: "pid 0 is not that of a process"},
		{name: "a large pid", line: record(math.MaxInt32+1, "s", 5, 9), problem: "pid 2147483648 is not that of a process"},
		{name: "no such signal", line: record(7, "s", 5, 65), problem: "there is no signal 65"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, ok, problem := parseLine([]byte(tt.line))
			if ok != (tt.want != request{}) || r != tt.want {
				t.Errorf("got %+v, %v, want %+v", r, ok, tt.want)
			}
			text := ""
			if problem != nil {
				text = problem.Error()
			}
			if diff := cmp.Diff(tt.problem, text); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// split cuts pieces into lines.
func split(pieces ...string) (lines []string, tooLong int) {
	var s splitter
	for _, p := range pieces {
		s.feed([]byte(p), func(l []byte) { lines = append(lines, string(l)) }, func() { tooLong++ })
	}
	return lines, tooLong
}

func TestSplitter(t *testing.T) {
	full := strings.Repeat("x", maxRequest)
	for _, tt := range []struct {
		name   string
		pieces []string
		want   []string
		long   int
	}{
		{name: "lines", pieces: []string{"a\nb\n\n"}, want: []string{"a", "b", ""}},
		{name: "parts", pieces: []string{"a", "b\nc", "", "\n", "d"}, want: []string{"ab", "c"}},
		{name: "the longest", pieces: []string{full[1:], "x\n"}, want: []string{full}},
		{name: "too long", pieces: []string{full, "x\n", "a\n"}, want: []string{"a"}, long: 1},
		{name: "too long, in many parts", pieces: []string{full, full, full, "b\na\n"}, want: []string{"a"}, long: 1},
		{name: "too long twice", pieces: []string{full + "x\n" + full + "x\na\n"}, want: []string{"a"}, long: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, long := split(tt.pieces...)
			if diff := cmp.Diff(tt.want, got); diff != "" || long != tt.long {
				t.Errorf("%d too long, want %d\n%s", long, tt.long, diff)
			}
		})
	}
}

// FuzzRequests reads any bytes: the lines do not depend on how the bytes arrive, and every request that is found is one
// that may be acted upon.
func FuzzRequests(f *testing.F) {
	f.Add([]byte(record(7, "s", 5, 9)+"\n"), 3)
	f.Add([]byte("{\"pid\"\n\n{\""), 1)
	f.Add([]byte(strings.Repeat("x", maxRequest+1)+"\n"+record(1, "{\"", -1, 0)), 4096)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		size = max(1, min(size, len(data)))
		whole, long := split(string(data))
		var pieces []string
		for piece := range slices.Chunk(data, size) {
			pieces = append(pieces, string(piece))
		}
		got, again := split(pieces...)
		if diff := cmp.Diff(whole, got); diff != "" || long != again {
			t.Fatalf("%d too long, and %d in pieces of %d\n%s", long, again, size, diff)
		}
		for _, line := range whole {
			r, ok, problem := parseLine([]byte(line))
			switch {
			case !ok && problem == nil:
				t.Errorf("%q is ignored without a reason", line)
			case ok && (r.pid < 1 || r.signal < 0 || r.signal > maxSignal || len(line) > maxRequest):
				t.Errorf("%q is %+v", line, r)
			}
		}
	})
}
