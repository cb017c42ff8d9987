package liveness

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/elasticrun/elasticrun/internal/stacks"
	"github.com/elasticrun/elasticrun/pkg/pystack"
)

// nodeHarness drives a node whose workers do what the test says.
type nodeHarness struct {
	*node
	now     time.Duration // since the start, as the test's clock has it
	found   []observation
	lines   map[int]int // where a worker's Python is, if not in line 1
	reports []string    // what was reported, and when
}

func newNodeHarness(timeout time.Duration, workers int) *nodeHarness {
	h := &nodeHarness{found: make([]observation, workers), lines: map[int]int{}}
	var list []Worker
	for i := range workers {
		list = append(list, Worker{LocalRank: i, PID: 100 + i})
		h.found[i] = observation{known: true, pid: 100 + i, state: 'S'}
	}
	h.node = newNode(timeout, list)
	return h
}

// sample takes a sample dt after the one before. Python runs in each worker, by default always in the same line.
func (h *nodeHarness) sample(dt time.Duration) {
	h.now += dt
	h.observe(dt, h.found)
	if h.wantsTrees() {
		h.addTrees(make([][]process, len(h.workers)))
	}
	if wishes := h.wishes(); wishes != nil {
		read := make([]stackRead, len(h.workers))
		for i, wish := range wishes {
			if wish != noStacks {
				read[i] = stackRead{known: true, pid: h.found[i].pid, threads: at("/srv/train.py", max(1, h.lines[i]))}
			}
		}
		h.addStacks(read)
	}
	h.end()
}

// end ends the sample, and keeps what it reports.
func (h *nodeHarness) end() {
	q, changed := h.finish()
	switch {
	case !changed:
	case q == nil:
		h.reports = append(h.reports, h.now.String()+": moves")
	default:
		text := h.now.String() + ": quiet for " + q.For.String()
		if q.Learned {
			text += ", learned"
		}
		if q.Held != "" {
			text += ", " + q.Held
		}
		h.reports = append(h.reports, text)
	}
}

// print makes a worker print a line.
func (h *nodeHarness) print(worker int) {
	h.found[worker].output++
	h.found[worker].main.switches++
}

// run takes samples until the test's clock is at that time. A worker prints every so often; 0 is never.
func (h *nodeHarness) run(until, every time.Duration) {
	for next := h.now; h.now < until; {
		dt := min(h.interval(), until-h.now)
		if every > 0 && h.now+dt >= next {
			h.print(0)
			next = h.now + dt + every
		}
		h.sample(dt)
	}
}

func TestGivenTimeout(t *testing.T) {
	h := newNodeHarness(8*time.Second, 2)
	h.run(4*time.Second, 0)
	h.print(1)
	h.run(13*time.Second, 0)
	h.print(0)
	h.run(14*time.Second, 0)
	want := []string{"13s: quiet for 8s, learned", "14s: moves"}
	if diff := cmp.Diff(want, h.reports); diff != "" {
		t.Error(diff)
	}
}

// Until a worker has shown a sign after its Python began, a silence is not unusual: the worker may still be starting.
func TestGivenTimeoutBeforePython(t *testing.T) {
	h := newNodeHarness(8*time.Second, 1)
	for range 8 {
		h.observe(time.Second, h.found)
		if h.wishes() == nil {
			t.Fatal("nobody looks for Python")
		}
		h.addStacks([]stackRead{{known: true, pid: 100}}) // no frames yet
		h.end()
	}
	h.found[0].faults = 1000
	h.sample(time.Second) // now it has
	if !h.workers[0].signed {
		t.Error("a sign in the sample in which Python began does not count")
	}
	if len(h.reports) != 2 || h.reports[0] != "0s: quiet for 8s" {
		t.Errorf("reports: %q", h.reports)
	}
}

func TestCadence(t *testing.T) {
	minutes := func(n float64) time.Duration { return time.Duration(n * float64(time.Minute)) }
	t.Run("never a sign", func(t *testing.T) {
		h := newNodeHarness(0, 1)
		h.run(minutes(3), 0)
		if diff := cmp.Diff([]string{"1m2.5s: quiet for 1m2.5s"}, h.reports); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a sign every few seconds", func(t *testing.T) {
		h := newNodeHarness(0, 1)
		h.run(minutes(5), 5*time.Second)
		if h.timeout() != leastTimeout || !h.cadence.learned {
			t.Errorf("timeout %v, learned %v", h.timeout(), h.cadence.learned)
		}
		h.run(minutes(8), 0)
		if len(h.reports) != 1 || !h.reported.Learned {
			t.Errorf("reports: %q", h.reports)
		}
	})
	t.Run("signs of a short time", func(t *testing.T) {
		h := newNodeHarness(0, 1)
		for range 20 {
			h.print(0)
			h.sample(2 * time.Second)
		}
		if h.cadence.learned {
			t.Error("signs of 40s are a rhythm")
		}
	})
	t.Run("a pause before the rhythm", func(t *testing.T) {
		h := newNodeHarness(0, 1)
		h.run(minutes(10), 0)
		h.run(minutes(13), 5*time.Second)
		if !h.cadence.learned || h.timeout() != leastTimeout {
			t.Errorf("timeout %v, learned %v", h.timeout(), h.cadence.learned)
		}
	})
	t.Run("a sign every minute", func(t *testing.T) {
		h := newNodeHarness(0, 1)
		h.run(minutes(30), minutes(1))
		if got := h.timeout(); got < minutes(5) || got > minutes(6) {
			t.Errorf("timeout %v", got)
		}
	})
	t.Run("a long pause teaches", func(t *testing.T) {
		h := newNodeHarness(0, 1)
		h.run(minutes(3), 5*time.Second)
		h.run(minutes(13), 0)
		h.print(0)
		h.run(minutes(13.1), 0)
		if len(h.reports) != 2 || h.reported != nil {
			t.Errorf("reports: %q", h.reports)
		}
		if got := h.timeout(); got < minutes(49) || got > minutes(51) {
			t.Errorf("timeout %v", got)
		}
	})
}

// A virtual machine that was paused, or a launcher that was stopped, makes one long sample, of which little counts.
func TestJump(t *testing.T) {
	h := newNodeHarness(8*time.Second, 1)
	h.print(0)
	h.sample(time.Second)
	h.sample(time.Hour)
	if h.quiet != 2*time.Second {
		t.Errorf("quiet for %v", h.quiet)
	}
}

func TestHeldNode(t *testing.T) {
	h := newNodeHarness(8*time.Second, 2)
	h.print(0)
	h.run(5*time.Second, 0)
	before := h.quiet
	h.found[1].tracer = 9
	h.run(time.Minute, 0)
	if h.quiet != before || len(h.reports) != 0 {
		t.Errorf("quiet for %v, reports %q", h.quiet, h.reports)
	}
	h.found[1].tracer = 0
	h.run(h.now+5*time.Second, 0)
	h.found[1].tracer = 9
	h.run(h.now+time.Second, 0)
	if len(h.reports) != 2 || h.reported.Held != "local rank 1: process 9 traces it" {
		t.Errorf("reports %q", h.reports)
	}
}

// Once a node was reported, a single new stack does not end its silence: a loop that waits over some lines more than
// are remembered shows one now and then.
func TestFlapping(t *testing.T) {
	for _, tt := range []struct {
		name   string
		frames [][]int // which workers show frames, by sample
		output int     // the sample in which worker 0 prints; 0 for none
		want   string
	}{
		{"once", [][]int{{0}, nil, nil}, 0, ""},
		{"twice with a pause", [][]int{{0}, nil, {0}, nil}, 0, ""},
		{"two workers in turn", [][]int{{0}, {1}, {0}, {1}}, 0, ""},
		{"twice in a row", [][]int{{0}, {0}, nil}, 0, "11s: moves"},
		{"the other one twice in a row", [][]int{{0}, {0, 1}, {1}}, 0, "11s: moves"},
		{"another sign", [][]int{nil, nil}, 1, "10s: moves"},
		{"another sign and frames", [][]int{{0, 1}, nil}, 1, "10s: moves"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, line := newNodeHarness(8*time.Second, 2), 1
			h.print(0)
			h.run(9*time.Second, 0)
			if h.reported == nil {
				t.Fatalf("reports %q", h.reports)
			}
			h.reports = nil
			for i, shows := range tt.frames {
				for _, w := range shows {
					line++
					h.found[w].main.switches++
					h.lines[w] = line
				}
				if i+1 == tt.output {
					h.print(0)
				}
				h.sample(time.Second)
			}
			if got := strings.Join(h.reports, "; "); got != tt.want {
				t.Errorf("reports %q, want %q", got, tt.want)
			}
		})
	}
}

// TestInterval checks that a timeout has several samples, and that samples are rare without need.
func TestInterval(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		time.Second: 250 * time.Millisecond, 8 * time.Second: time.Second, time.Hour: 15 * time.Second,
		0: 7500 * time.Millisecond,
	} {
		n := newNode(timeout, nil)
		if n.interval() != want {
			t.Errorf("with timeout %v the interval is %v, want %v", timeout, n.interval(), want)
		}
		if n.quiet = n.timeout() / 2; n.interval() > quietInterval {
			t.Errorf("with timeout %v the interval of a quiet node is %v", timeout, n.interval())
		}
	}
}

// TestNodeProperties checks in random schedules that silence is what it says: it never grows while the job is suspended
// or held, a node of which a worker moves is not quiet, and no silence is longer than the time that passed.
func TestNodeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		timeout := rapid.SampledFrom([]time.Duration{0, 2 * time.Second, time.Minute}).Draw(t, "timeout")
		h := newNodeHarness(timeout, 2)
		var silence time.Duration // at most, by this test's own count
		for range rapid.IntRange(1, 200).Draw(t, "samples") {
			before := h.quiet
			dt := time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "dt"))
			w := rapid.IntRange(0, 1).Draw(t, "worker")
			what := rapid.SampledFrom([]string{"nothing", "CPU", "output", "step", "suspend", "trace", "leave"}).Draw(t, "what")
			silence += dt
			h.found[w].main.switches++
			switch what {
			case "CPU":
				h.found[w].cpu += 1000
			case "output":
				h.found[w].output++
			case "step":
				h.found[w].step = step(h.found[w].step.value + 1)
			case "trace":
				h.found[w].tracer = 5
			case "leave":
				h.found[w].tracer = 0
			}
			held := h.found[0].tracer+h.found[1].tracer != 0
			if what == "suspend" {
				h.suspend()
				h.end()
			} else {
				h.sample(dt)
			}
			switch {
			case what == "output" || what == "step":
				silence = 0
				if h.quiet != 0 || h.reported != nil {
					t.Fatalf("a worker moves, and the node is quiet for %v, %+v", h.quiet, h.reported)
				}
			case (what == "suspend" || held) && h.quiet > before:
				t.Fatalf("%s: quiet grows from %v to %v", what, before, h.quiet)
			case h.quiet > silence:
				t.Fatalf("quiet for %v, silent for %v", h.quiet, silence)
			}
			if h.reported != nil && h.quiet < h.timeout() {
				t.Fatalf("reported after %v of %v", h.quiet, h.timeout())
			}
		}
	})
}

// TestRing checks the ring against a list of all stacks.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 4
		r := ring{size: size}
		var all []uint64
		for _, hash := range rapid.SliceOf(rapid.Uint64Range(0, 7)).Draw(t, "hashes") {
			distinct, unseen := map[uint64]bool{}, true
			for i := len(all) - 1; i >= 0 && len(distinct) < size; i-- {
				distinct[all[i]] = true
				unseen = unseen && all[i] != hash
			}
			if r.add(hash) != unseen {
				t.Fatalf("%d after %v: unseen is not %v", hash, all, unseen)
			}
			all = append(all, hash)
		}
	})
}

func TestServes(t *testing.T) {
	for file, want := range map[string]bool{
		"/usr/lib/python3.11/selectors.py": true, "/usr/lib/python3.11/asyncio/base_events.py": true,
		"/usr/lib/python3.11/http/server.py": true, "/srv/selectors.py": false,
		"/usr/lib/python3.11/threading.py": false, "/usr/lib/python3.11/site-packages/x/asyncio/a.py": false,
	} {
		if got := serves([]pystack.Frame{{File: file, Line: 1, Function: "f"}}); got != want {
			t.Errorf("%s serves: %v, want %v", file, got, want)
		}
	}
	const library = "/usr/lib/python3.11/"
	for caller, want := range map[string]bool{
		library + "socketserver.py": true, library + "asyncio/subprocess.py": true, "/srv/multiprocessing/pool.py": true,
		library + "multiprocessing/managers.py": true, library + "multiprocessing/connection.py": false,
		library + "multiprocessing/queues.py": false, library + "multiprocessing/pool.py": false,
		library + "multiprocessing/popen_fork.py": false, library + "subprocess.py": false,
		library + "site-packages/torch/utils/data/dataloader.py": false,
	} {
		frames := []pystack.Frame{{File: library + "selectors.py"}, {File: caller}, {File: "/srv/train.py"}}
		if got := serves(frames); got != want {
			t.Errorf("a selector below %s serves: %v, want %v", caller, got, want)
		}
	}
}

// A worker that runs while another one shows signs does not count as silent, because its stack is not read then.
func TestHidden(t *testing.T) {
	h := newNodeHarness(80*time.Second, 3)
	h.print(1)
	for range 6 { // worker 0 prints, worker 1 only runs, and worker 2 is blocked
		h.print(0)
		h.found[1].main.switches++
		h.sample(5 * time.Second)
	}
	for i, want := range []stacks.Life{
		{Sign: "output"}, {Sign: "ran", SinceOutput: 25}, {Quiet: 30, SinceOutput: 30},
	} {
		if got := h.workers[i].life(); got != want {
			t.Errorf("worker %d: %+v, want %+v", i, got, want)
		}
	}
	h.sample(5 * time.Second)
	if got := h.workers[1].life(); got.Quiet != 5 || got.Sign != "ran" {
		t.Errorf("worker 1, 5 s later: %+v", got)
	}
}

// A main thread that waits for a thread, process or pool leaves the work to it.
func TestDelegates(t *testing.T) {
	const library = "/usr/lib/python3.11/"
	for frame, want := range map[pystack.Frame]bool{
		{File: library + "threading.py", Function: "Thread.join"}:                               true,
		{File: library + "threading.py", Function: "_shutdown"}:                                 true,
		{File: library + "threading.py", Function: "Condition.wait"}:                            false,
		{File: library + "multiprocessing/process.py", Function: "BaseProcess.join"}:            true,
		{File: library + "multiprocessing/pool.py", Function: "ApplyResult.wait"}:               true,
		{File: library + "multiprocessing/queues.py", Function: "Queue.get"}:                    false,
		{File: library + "concurrent/futures/_base.py", Function: "Future.result"}:              true,
		{File: library + "subprocess.py", Function: "Popen._wait"}:                              true,
		{File: "/srv/subprocess.py", Function: "wait"}:                                          false,
		{File: library + "site-packages/torch/multiprocessing/spawn.py", Function: "join"}:      true,
		{File: library + "site-packages/torch/utils/data/dataloader.py", Function: "_get_data"}: false,
	} {
		if got := delegates([]pystack.Frame{{File: library + "selectors.py"}, frame}); got != want {
			t.Errorf("%s of %s delegates: %v, want %v", frame.Function, frame.File, got, want)
		}
	}
}
