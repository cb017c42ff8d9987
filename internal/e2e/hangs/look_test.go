package hangs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/internal/stacks"
)

// sight is what one rank does, as seen from outside.
type sight struct {
	stacks.Worker
	syscall string  // the number of the system call in which the main thread is, or "running"
	cpu     float64 // CPUs that the process used, over at least minInterval
}

const (
	// minInterval is the least time over which CPU use is measured.
	minInterval = time.Second
	// maxLook is how long look waits for ranks that move. Then --hang-action=stop has not ended the job yet.
	maxLook = 8 * time.Second
)

// look asks for the stacks of all ranks until two answers are the same, or for maxLook. Ranks that exited are missing.
func (j *job) look() map[int]sight {
	j.t.Helper()
	started, before := time.Now(), j.ask()
	begun, used := time.Now(), j.cpuTimes(before)
	var after map[int]stacks.Worker
	testenv.Await(j.t, "a second answer", bound, func() bool {
		if time.Since(begun) < minInterval {
			return false
		}
		after = j.ask()
		if !j.settled(before, after) && time.Since(started) < maxLook {
			before, begun = after, time.Now()
			used = j.cpuTimes(before)
			return false
		}
		return true
	})
	all := map[int]sight{}
	now, passed := j.cpuTimes(after), time.Since(begun).Seconds()
	for rank, w := range after {
		call, _ := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", max(w.PID, w.PythonPID)))
		number, _, _ := strings.Cut(strings.TrimSpace(string(call)), " ")
		all[rank] = sight{Worker: w, syscall: number, cpu: (now[rank] - used[rank]) / passed}
	}
	return all
}

// settled reports whether ranks that sleep have not moved.
func (j *job) settled(before, after map[int]stacks.Worker) bool {
	for rank, w := range after {
		was := before[rank]
		if w.State != running && (was.State != w.State || !slices.Equal(mainFrames(was), mainFrames(w))) {
			return false
		}
	}
	return len(before) == len(after)
}

// mainFrames returns the frames of the main thread.
func mainFrames(w stacks.Worker) []stacks.Frame {
	if len(w.Threads) == 0 {
		return nil
	}
	return w.Threads[0].Frames
}

// ask runs elasticrun stacks.
func (j *job) ask() map[int]stacks.Worker {
	j.t.Helper()
	cmd := exec.CommandContext(j.t.Context(), testenv.Binary(j.t), "stacks", "--rdzv-endpoint="+j.endpoint,
		"--rdzv-id=job", "--all-threads", "--json")
	var stderr testenv.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		j.t.Fatalf("elasticrun stacks: %v\n%s", err, &stderr)
	}
	var answer struct {
		Groups  []stacks.Group `json:"groups"`
		NoReply []string       `json:"silent"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		j.t.Fatalf("elasticrun stacks: %v\n%s", err, out)
	}
	if len(answer.NoReply) > 0 {
		j.t.Fatalf("elasticrun stacks: no answer of %v", answer.NoReply)
	}
	all := map[int]stacks.Worker{}
	for _, group := range answer.Groups {
		for _, w := range group.Workers {
			all[w.Rank] = w
		}
	}
	return all
}

// cpuTimes returns the CPU time of each rank's process in seconds, from proc_pid_stat(5).
func (j *job) cpuTimes(workers map[int]stacks.Worker) map[int]float64 {
	j.t.Helper()
	const ticks = 100 // of a second; every Linux platform of Go has that
	all := map[int]float64{}
	for rank, w := range workers {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.PID)) // the process can have ended
		_, after, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		if len(fields) < 13 {
			continue
		}
		var user, system float64
		_, _ = fmt.Sscan(fields[11]+" "+fields[12], &user, &system) // numbers
		all[rank] = (user + system) / ticks
	}
	return all
}

// innermost returns the functions, files and lines of the n innermost frames of the main thread.
func (s sight) innermost(n int) string {
	frames := mainFrames(s.Worker)
	if len(frames) == 0 {
		return s.Problem
	}
	var names []string
	for _, f := range frames[:min(n, len(frames))] {
		names = append(names, fmt.Sprintf("%s (%s:%d)", f.Function, filepath.Base(f.File), f.Line))
	}
	return strings.Join(names, " < ")
}

// has reports whether a function of a frame of the main thread contains the text.
func (s sight) has(text string) bool {
	return slices.ContainsFunc(mainFrames(s.Worker), func(f stacks.Frame) bool {
		return strings.Contains(f.Function, text)
	})
}

// checkOdd checks that the odd rank is where the table says, and that the others are elsewhere.
func checkOdd(t *testing.T, h hang, odd int, ranks map[int]sight) {
	t.Helper()
	frame, state := h.frame, h.state
	if frame == "" {
		frame = h.name
	}
	if state == "" {
		state = "sleeping"
	}
	if s, alive := ranks[odd]; state == gone {
		if alive {
			t.Errorf("rank %d, which has exited, is %s in %s", odd, s.State, s.innermost(3))
		}
	} else if s.State != state && state != either || !s.has(frame) {
		t.Errorf("rank %d is %q in %s, want %q in %s", odd, s.State, s.innermost(5), state, frame)
	}
	for rank, s := range ranks {
		if rank != odd && s.has(frame) {
			t.Errorf("rank %d, which waits, is in %s too", rank, frame)
		}
	}
}
