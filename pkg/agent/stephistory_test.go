package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// The finder knows the first and the last step, the smallest gap, and whether steps go down.
func TestStepFinderRemembers(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	mark := func(step int64, second int) rdzv.StepMark {
		return rdzv.StepMark{Step: step, At: at.Add(time.Duration(second) * time.Second)}
	}
	for _, tt := range []struct {
		name  string
		reads []string // one each second
		want  shownSteps
	}{
		{"one", []string{"step 7\n"}, shownSteps{mark(7, 0), mark(7, 0), 0, false}},
		{"each by itself", []string{"step 7\n", "step 8\n", "loss\n", "step 10\n"}, shownSteps{mark(7, 0), mark(10, 3), 1, false}},
		{"every tenth", []string{"step 10\n", "step 20\n", "step 40\n"}, shownSteps{mark(10, 0), mark(40, 2), 10, false}},
		{"many at once", []string{"step 1\nstep 2\nstep 3\n", "step 4\nstep 5\n"}, shownSteps{mark(1, 0), mark(5, 1), 1, false}},
		{"two at once", []string{"step 10\n", "step 20\nstep 30\n"}, shownSteps{mark(10, 0), mark(30, 1), 10, false}},
		{"a step again", []string{"step 7\n", "step 7\n"}, shownSteps{mark(7, 0), mark(7, 1), 0, false}},
		{"another epoch", []string{"step 7\n", "step 1\n"}, shownSteps{mark(7, 0), mark(1, 1), 0, true}},
	} {
		f := newStepFinder(regexp.MustCompile(`step (\d+)`))
		s := f.stream()
		for i, read := range tt.reads {
			s.Scan([]byte(read), at.Add(time.Duration(i)*time.Second))
		}
		got, ok := stepSource{finder: f}.latest(at, at)
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(shownSteps{})); diff != "" || !ok {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A busy machine reads all lines of a worker at once. Its last step counts nevertheless.
func TestStepsReadTogether(t *testing.T) {
	t.Parallel()
	f, now := newStepFinder(regexp.MustCompile(`step (\d+)`)), time.Now()
	f.stream().Scan([]byte("step 1001\nstep 1002\nstep 1003\n"), now)
	h := &stepHistory{began: now, sources: []stepSource{{finder: f}}}
	want := []rdzv.StepMark{{Step: 1001, At: now}, {Step: 1003, At: now}}
	if diff := cmp.Diff(want, h.update(now.Add(time.Second)).Marks); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
}

// The streams of a worker are read one by one: which of their lines came first is not known.
func TestStepsOfTwoStreams(t *testing.T) {
	t.Parallel()
	f := newStepFinder(regexp.MustCompile(`step (\d+)`))
	now := time.Now()
	stdout, stderr := f.stream(), f.stream()
	stderr.Scan([]byte("ValueError: loss is nan at step 3\n"), now)
	stdout.Scan([]byte("step 1\nstep 2\nstep 3\n"), now)
	if got, _ := (stepSource{finder: f}).latest(now, now); got.fell || got.gap != 1 {
		t.Errorf("%+v", got)
	}
}

// The last step counts also if it was read, in another stream, a moment before the first one was recorded.
func TestStepsOfStreamsReadTogether(t *testing.T) {
	t.Parallel()
	f, now := newStepFinder(regexp.MustCompile(`step (\d+)`)), time.Now()
	h := &stepHistory{began: now.Add(-time.Second), sources: []stepSource{{finder: f}}}
	f.stream().Scan([]byte("step 1001\n"), now)
	f.stream().Scan([]byte("ValueError: loss is nan at step 1003\n"), now.Add(-time.Microsecond))
	want := []rdzv.StepMark{{Step: 1001, At: now}, {Step: 1003, At: now}}
	if diff := cmp.Diff(want, h.update(now.Add(time.Second)).Marks); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
}

// A history keeps the first and the last step of the workers that are furthest, and a bounded number between.
func TestStepHistory(t *testing.T) {
	t.Parallel()
	began := time.Now()
	slow, fast := newStepFinder(regexp.MustCompile(`\d+`)), newStepFinder(regexp.MustCompile(`\d+`))
	h := stepHistory{began: began, sources: []stepSource{{finder: slow}, {finder: fast}, {}}}
	if s := h.update(began); len(s.Marks) > 0 {
		t.Errorf("before the first step: %+v", s)
	}
	for second := 1; second <= 500; second++ {
		at := began.Add(time.Duration(second) * time.Second)
		slow.record(nil, []int64{int64(second)}, at)
		fast.record(nil, []int64{int64(2 * second)}, at)
		s := h.update(at)
		n := len(s.Marks)
		first, last := s.Marks[0], s.Marks[n-1]
		if first.At != began.Add(time.Second) || last.Step != int64(2*second) || last.At != at || n > rdzv.MaxSteps {
			t.Fatalf("after %d s, %d marks from %+v to %+v", second, n, first, last)
		}
		for i, m := range s.Marks[1:] {
			if m.Step <= s.Marks[i].Step || m.At.Before(s.Marks[i].At) {
				t.Fatalf("marks %+v", s.Marks)
			}
		}
	}
	slow.record(new(int64(500)), []int64{501}, began.Add(501*time.Second))
	if s := h.update(began.Add(501 * time.Second)); s.Gap != 1 || s.Fell {
		t.Errorf("gap %d, fell %v", s.Gap, s.Fell)
	}
	slow.record(new(int64(500)), []int64{3}, began.Add(502*time.Second))
	if s := h.update(began.Add(502 * time.Second)); !s.Fell {
		t.Error("a worker's steps went down, unnoticed")
	}
}

func TestReadHeartbeat(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "beat")
	now := time.Now()
	written := now.Add(-3 * time.Second)
	for _, tt := range []struct {
		text  string
		since time.Time
		want  string
	}{
		{"7", now.Add(-time.Minute), "7 3s ago"},
		{" 12\n", now.Add(-time.Minute), "12 3s ago"},
		{"7", now.Add(-time.Second), "none"},
		{"", now.Add(-time.Minute), "none"},
		{"seven", now.Add(-time.Minute), "none"},
	} {
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, written, written); err != nil {
			t.Fatal(err)
		}
		got := "none"
		if step, ok := readHeartbeat(path, tt.since, now); ok {
			got = fmt.Sprint(step.Step, " ", now.Sub(step.At).Round(time.Millisecond), " ago")
		}
		if got != tt.want {
			t.Errorf("%q since %v: %s, want %s", tt.text, now.Sub(tt.since), got, tt.want)
		}
	}
	if _, ok := readHeartbeat(path+".none", time.Time{}, now); ok {
		t.Error("a step without a file")
	}
	future := now.Add(time.Hour) // the clock was set back
	if err := os.WriteFile(path, []byte("7"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, future, future); err != nil {
		t.Fatal(err)
	}
	if step, ok := readHeartbeat(path, now.Add(-time.Minute), now); !ok || step.At != now {
		t.Errorf("%+v %v", step, ok)
	}
}

// brokenWatcher is a FileWatcher on a machine whose limit of watches is used up.
type brokenWatcher struct{}

func (brokenWatcher) Watch([]string) (FileWatch, error) { return nil, errors.New("too many watches") }

// Heartbeats are found also if they cannot be watched.
func TestAwaitStepPolls(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "beat")
	h := &stepHistory{began: time.Now(), sources: []stepSource{{heartbeat: path}}}
	a := &Agent{opts: Options{ErrorFiles: brokenWatcher{}}, round: &rdzv.Round{Used: &goodput.Goodput{Steps: true}}}
	if err := os.WriteFile(path, []byte("7"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if !a.awaitStep(ctx, h) {
		t.Error("no step was found")
	}
}
