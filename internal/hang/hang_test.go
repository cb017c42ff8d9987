package hang

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/elasticrun/elasticrun/internal/stacks"
)

// The stacks of the tests, innermost call first. The library is where Debian installs it.
const lib = "/usr/lib/python3/dist-packages/torch/"

var (
	allReduce = []stacks.Frame{
		{File: lib + "distributed/distributed_c10d.py", Line: 2501, Function: "all_reduce"},
		{File: lib + "distributed/c10d_logger.py", Line: 81, Function: "_exception_logger.<locals>.wrapper"},
		{File: "/srv/train.py", Line: 40, Function: "train"},
	}
	broadcast = []stacks.Frame{
		{File: lib + "distributed/distributed_c10d.py", Line: 2301, Function: "broadcast"},
		{File: lib + "distributed/c10d_logger.py", Line: 81, Function: "_exception_logger.<locals>.wrapper"},
		{File: "/srv/train.py", Line: 52, Function: "train"},
	}
	backward = []stacks.Frame{
		{File: lib + "autograd/graph.py", Line: 824, Function: "_engine_run_backward"},
		{File: lib + "_tensor.py", Line: 581, Function: "Tensor.backward"},
		{File: "/srv/train.py", Line: 33, Function: "train"},
	}
	// inModel is a worker that is in the user's model, which DistributedDataParallel calls.
	inModel = []stacks.Frame{
		{File: "/srv/model.py", Line: 7, Function: "Model.forward"},
		{File: lib + "nn/parallel/distributed.py", Line: 1640, Function: "DistributedDataParallel.forward"},
		{File: "/srv/train.py", Line: 30, Function: "train"},
	}
	save = []stacks.Frame{
		{File: lib + "distributed/checkpoint/filesystem.py", Line: 300, Function: "_write_item"},
		{File: "/srv/train.py", Line: 60, Function: "save"},
	}
	lock = []stacks.Frame{{File: "/srv/train.py", Line: 21, Function: "update"}, {File: "/srv/train.py", Line: 35, Function: "train"}}
)

// worker returns a worker with this activity and these frames.
func worker(rank int, activity stacks.Activity, frames []stacks.Frame) stacks.Worker {
	return stacks.Worker{
		Rank: rank, Host: "node1", PID: 100 + rank, State: "sleeping", Wait: "futex_wait_queue",
		Threads: []stacks.Thread{{ID: 100 + rank, Frames: frames}},
		Life:    &stacks.Life{Activity: activity, Quiet: 60, Sign: "output", Stacks: 1},
	}
}

// with returns a worker with a change.
func with(w stacks.Worker, change func(*stacks.Worker)) stacks.Worker {
	life := *w.Life
	w.Life = &life
	change(&w)
	return w
}

// three returns ranks 0 to 2 with this activity and these frames, and the others.
func three(activity stacks.Activity, frames []stacks.Frame, others ...stacks.Worker) []stacks.Worker {
	var all []stacks.Worker
	for rank := range 3 {
		all = append(all, worker(rank, activity, frames))
	}
	return append(all, others...)
}

func TestJudge(t *testing.T) {
	several := func(w *stacks.Worker) { w.Life.Stacks = 3 }
	gone := stacks.Worker{Rank: 3, Host: "node2", State: stacks.Exited}
	unread := func(w *stacks.Worker) { w.State, w.Wait, w.Threads, w.Problem = "", "", nil, "not read in time" }
	tests := []struct {
		name    string
		workers []stacks.Worker
		odd     []int
		reason  Reason
		proof   bool
		none    string // why there is no hang
	}{
		{name: "a lock", workers: three("blocked", allReduce, worker(3, "blocked", lock)), odd: []int{3}, reason: NotWaiting, proof: true},
		{name: "in the model", workers: three("blocked", backward, worker(3, "blocked", inModel)), odd: []int{3}, reason: NotWaiting, proof: true},
		{name: "in a checkpoint", workers: three("blocked", allReduce, worker(3, "blocked", save)), odd: []int{3}, reason: NotWaiting, proof: true},
		{name: "a spin", workers: three("blocked", allReduce, with(worker(3, "spinning", lock), several)), odd: []int{3}, reason: NotWaiting},
		{name: "polling", workers: three("blocked", allReduce, worker(3, "polling", lock)), odd: []int{3}, reason: NotWaiting},
		{name: "mismatched operations", workers: three("blocked", allReduce, worker(3, "blocked", broadcast)), odd: []int{3}, reason: OtherOperation, proof: true},
		{name: "all_reduce and backward", workers: three("blocked", allReduce, worker(3, "blocked", backward)), odd: []int{3}, reason: OtherOperation, proof: true},
		{name: "stopped", workers: three("blocked", allReduce, worker(3, "stopped", allReduce)), odd: []int{3}, reason: StoppedWorker, proof: true},
		{name: "a disk", workers: three("blocked", allReduce, worker(3, "disk", save)), odd: []int{3}, reason: KernelWorker, proof: true},
		{
			name: "a stopped child",
			workers: three("polling", lock, with(worker(3, "polling", lock), func(w *stacks.Worker) {
				w.Life.StuckChild = "pid 7 (python3) is stopped"
			})),
			odd: []int{3}, reason: StoppedChild,
		},
		{name: "one has exited", workers: three("blocked", allReduce, gone), odd: []int{3}, reason: ExitedEarly, proof: true},
		{name: "one has exited, and the others wait for a GPU", workers: three("spinning", lock, gone), odd: []int{3}, reason: ExitedEarly},
		{name: "all spin in one place", workers: three("spinning", lock, worker(3, "spinning", save)), odd: []int{3}, reason: OtherPlace},
		{
			name:    "another way to one place",
			workers: three("blocked", []stacks.Frame{lock[0], save[1]}, worker(3, "blocked", lock)), odd: []int{3},
			reason: OtherPlace, proof: true,
		},
		{name: "all at one place", workers: three("blocked", allReduce), proof: true},
		{
			name: "one behind",
			workers: []stacks.Worker{
				with(worker(0, "blocked", allReduce), func(w *stacks.Worker) { w.Life.Step = new(int64(7)) }),
				with(worker(1, "blocked", allReduce), func(w *stacks.Worker) { w.Life.Step = new(int64(6)) }),
			},
			odd: []int{1}, reason: BehindOthers, proof: true,
		},
		{name: "two against two", workers: []stacks.Worker{
			worker(0, "blocked", allReduce), worker(1, "blocked", allReduce), worker(2, "blocked", lock), worker(3, "blocked", lock),
		}, odd: []int{2, 3}, reason: NotWaiting, proof: true},
		{name: "most do something else", workers: []stacks.Worker{
			worker(0, "blocked", allReduce), worker(1, "blocked", lock), worker(2, "blocked", lock),
		}, proof: true},
		{name: "one worker", workers: []stacks.Worker{worker(0, "blocked", lock)}, odd: []int{0}, proof: true},
		{name: "unknown", workers: three("blocked", allReduce, worker(3, "unknown", lock)), odd: []int{3}, reason: NotWaiting},
		{name: "not read in time", workers: three("blocked", allReduce, with(worker(3, "unknown", nil), unread)), odd: []int{3}, reason: NotWaiting},
		{name: "one moves, and is not read in time", workers: three("blocked", allReduce, with(worker(3, "moving", nil), unread)), none: "rank 3 makes progress"},
		{name: "one moves", workers: three("blocked", allReduce, worker(3, "moving", lock)), none: "rank 3 makes progress"},
		{
			name: "a debugger",
			workers: three("blocked", allReduce, with(worker(3, "held", lock), func(w *stacks.Worker) {
				w.Life.Held = "pdb waits"
			})),
			none: "rank 3 is held: pdb waits",
		},
		{name: "servers", workers: three("idle", lock), none: "all workers wait for requests, or cannot be seen"},
		{name: "a server among others", workers: three("blocked", allReduce, worker(3, "idle", lock)), odd: []int{3}, reason: NotWaiting},
		{name: "all compute", workers: three("spinning", lock, with(worker(3, "spinning", lock), several)), none: "the workers compute"},
		{name: "all have exited", workers: []stacks.Worker{gone}, none: "no worker runs"},
		{name: "no workers", none: "no worker runs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := Judge(tt.workers, nil, false)
			if f.Why != tt.none || f.Hang != (tt.none == "") || f.Proof != tt.proof || f.Reason != tt.reason {
				t.Errorf("hang %v (%s), proof %v, reason %q", f.Hang, f.Why, f.Proof, f.Reason)
			}
			if diff := cmp.Diff(tt.odd, f.Odd); diff != "" {
				t.Errorf("odd ranks: %s", diff)
			}
		})
	}
}

// TestSpinWithoutTimeout checks that a worker that spins counts as hanging only after minutes, unless the user has said
// how long a pause may be.
func TestSpinWithoutTimeout(t *testing.T) {
	silentFor := func(d time.Duration, activity stacks.Activity) []stacks.Worker {
		return []stacks.Worker{
			worker(0, "blocked", allReduce),
			with(worker(1, activity, lock), func(w *stacks.Worker) {
				if w.Life.Quiet = d.Seconds(); activity == "busy" { // its main thread waits for one that computes
					w.Life.Activity, w.Life.Share = "blocked", 0.9
				}
			}),
		}
	}
	for _, tt := range []struct {
		quiet    time.Duration
		activity stacks.Activity
		auto     bool
		want     bool
	}{
		{time.Minute, "spinning", true, false},
		{time.Minute, "spinning", false, true},
		{time.Minute, "polling", true, true},
		{time.Minute, "blocked", true, true},
		{time.Minute, "busy", true, false},
	} {
		if f := Judge(silentFor(tt.quiet, tt.activity), nil, tt.auto); f.Hang != tt.want {
			t.Errorf("%+v: hang %v (%s)", tt, f.Hang, f.Why)
		}
	}
	long := silentFor(SpinTimeout, "spinning")
	long[0] = with(long[0], func(w *stacks.Worker) { w.Life.Quiet = 400 })
	if f := Judge(long, nil, true); !f.Hang {
		t.Errorf("after %v: %s", SpinTimeout, f.Why)
	}
}

// TestCompare checks what may not have happened between two looks.
func TestCompare(t *testing.T) {
	looked := func(change func(*stacks.Worker)) Finding {
		return Judge(three("blocked", allReduce, with(worker(3, "blocked", lock), change)), nil, true)
	}
	before := looked(func(w *stacks.Worker) { w.Life.Output, w.Life.Switches, w.Life.CPU = 10, 20, 3 })
	for _, tt := range []struct {
		name         string
		change       func(*stacks.Worker)
		still, proof bool
	}{
		{"nothing has happened", func(*stacks.Worker) {}, true, true},
		{"a watchdog used some CPU time", func(w *stacks.Worker) { w.Life.CPU += 0.4 }, true, true},
		{"another thread computes", func(w *stacks.Worker) { w.Life.CPU += 0.5 }, true, false},
		{"the main thread has run", func(w *stacks.Worker) { w.Life.Switches++ }, true, false},
		{"it sleeps for a time", func(w *stacks.Worker) { w.Wait = "hrtimer_nanosleep" }, true, false},
		{"it has written", func(w *stacks.Worker) { w.Life.Output++ }, false, false},
		{"it has reported a step", func(w *stacks.Worker) { w.Life.Step = new(int64(1)) }, false, false},
		{"it is elsewhere", func(w *stacks.Worker) { w.Threads[0].Frames = save }, false, false},
	} {
		now := looked(func(w *stacks.Worker) {
			w.Life.Output, w.Life.Switches, w.Life.CPU = 10, 20, 3
			tt.change(w)
		})
		if got := now.Compare(before, 10*time.Second); got.Still != tt.still || got.Proof != tt.proof {
			t.Errorf("%s: still %v, proof %v", tt.name, got.Still, got.Proof)
		}
	}
	children := looked(func(w *stacks.Worker) {
		w.Life.Output, w.Life.Switches, w.Life.CPU, w.Life.ChildCPU = 10, 20, 3.1, 0.1
	})
	if got := children.Compare(before, 10*time.Second); !got.Still || !got.AtWork || got.Proof {
		t.Errorf("a process below a worker has used CPU time: %+v", got)
	}
	at := func(line int) Finding {
		return looked(func(w *stacks.Worker) {
			w.Children = []stacks.Child{{PID: 7, Frames: []stacks.Frame{{File: "/srv/data.py", Line: line, Function: "decode"}}}}
		})
	}
	if got := at(3).Compare(at(3), 10*time.Second); got.AtWork {
		t.Error("a process below a worker is at work in the same line")
	}
	if got := at(4).Compare(at(3), 10*time.Second); !got.Still || !got.AtWork || got.Proof {
		t.Errorf("a process below a worker has gone on: %+v", got)
	}
	if got := before.Compare(Finding{}, time.Second); got.Still {
		t.Error("it is still so after one look")
	}
}

// TestChildAtWork checks that a worker whose child computes is no proof of a hang.
func TestChildAtWork(t *testing.T) {
	f := Judge(three("blocked", allReduce, with(worker(3, "blocked", lock), func(w *stacks.Worker) {
		w.Life.BusyChild = "pid 9 (cc1) uses CPU time"
	})), nil, false)
	if !f.Hang || f.Proof || !f.AtWork {
		t.Errorf("hang %v, proof %v, at work %v", f.Hang, f.Proof, f.AtWork)
	}
}

// TestCompleteAndKey checks what makes a finding complete, and that its key distinguishes states of the workers.
func TestCompleteAndKey(t *testing.T) {
	base := Judge(three("blocked", allReduce, worker(3, "blocked", lock)), nil, false)
	if !base.Complete || base.Quiet != time.Minute {
		t.Errorf("complete %v, quiet for %v", base.Complete, base.Quiet)
	}
	if f := Judge(base.Workers, []string{"node2"}, false); f.Complete || f.Proof {
		t.Error("it is complete without a node")
	}
	if f := Judge(three("blocked", allReduce, worker(3, "unknown", lock)), nil, false); f.Complete || f.Proof {
		t.Error("it is complete with a worker that cannot be seen")
	}
	for name, workers := range map[string][]stacks.Worker{
		"another place": three("blocked", allReduce, worker(3, "blocked", save)),
		"another process": three("blocked", allReduce, with(worker(3, "blocked", lock), func(w *stacks.Worker) {
			w.PID = 7
		})),
	} {
		if Judge(workers, nil, false).Key == base.Key {
			t.Errorf("%s has the same key", name)
		}
	}
	if Judge(three("blocked", allReduce, worker(3, "polling", lock)), nil, false).Key != base.Key {
		t.Error("a worker that polls has another key each time it wakes up")
	}
	spin := func(frames []stacks.Frame) string {
		return Judge(three("blocked", allReduce, with(worker(3, "spinning", frames), func(w *stacks.Worker) {
			w.Life.Stacks = 2
		})), nil, false).Key
	}
	if spin(lock) != spin(lock[:1]) {
		t.Error("a worker that spins over two places has two keys")
	}
}

func TestText(t *testing.T) {
	workers := three("blocked", allReduce, with(worker(3, "blocked", lock), func(w *stacks.Worker) {
		w.Life.LastLine, w.Life.Step, w.Life.Quiet = "loss\x1b[2J 0.5", new(int64(117)), 62
		decodes := stacks.Child{PID: 7, Name: "pt_data"}
		decodes.Frames = []stacks.Frame{{File: "/srv/data.py", Line: 12, Function: "decode"}}
		w.Children = []stacks.Child{{PID: 6, Name: "pt_data"}, decodes, decodes, decodes}
	}))
	f := Judge(workers, []string{"node9"}, false)
	const want = `hang suspected: none of 4 ranks that replied has shown progress for 1m
rank 3 on node1 is in update, train.py:21, and its process 7 (pt_data) is in decode, data.py:12, ` +
		`while the others wait for a peer
rank 3: pid 103, sleeping in futex_wait_queue, last sign of life 1m02s ago (output), step 117, process 7 (pt_data) is in decode, data.py:12, process 7 (pt_data) is in decode, data.py:12, last line: "loss\x1b[2J 0.5"
no reply from node9
all stacks: /logs/hang.txt
the job goes on

rank 3 on node1 (pid 103): sleeping in futex_wait_queue, step 117, quiet for 1m02s
    update (/srv/train.py:21)
    train (/srv/train.py:35)

rank 0 on node1 (pid 100), rank 1 on node1 (pid 101), rank 2 on node1 (pid 102): ` +
		`sleeping in futex_wait_queue, quiet for 1m
    all_reduce (/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py:2501)
    _exception_logger.<locals>.wrapper (/usr/lib/python3/dist-packages/torch/distributed/c10d_logger.py:81)
    train (/srv/train.py:40)
`
	title, brief := f.Brief("all stacks: /logs/hang.txt", "the job goes on")
	if diff := cmp.Diff(want, title+"\n"+brief); diff != "" {
		t.Error(diff)
	}
	if text := f.Text(time.Unix(0, 0).UTC()); strings.Count(text, "\nrank ") != 6 {
		t.Errorf("text:\n%s", text)
	}
}

func TestSuspects(t *testing.T) {
	child := func(w *stacks.Worker) { w.Life.StuckChild = "pid 7 (python3) is stopped" }
	for want, workers := range map[string][]stacks.Worker{
		"rank 3 on node1 is stopped by a signal, in update, train.py:21":                                        three("blocked", allReduce, worker(3, "stopped", lock)),
		"rank 3 on node1 waits in the kernel, where no signal ends it (futex_wait_queue), in save, train.py:60": three("blocked", allReduce, worker(3, "disk", save)),
		"rank 3 on node1 has a process that cannot run: pid 7 (python3) is stopped; it is in update, train.py:21": three("polling", lock,
			with(worker(3, "polling", lock), child)),
		"rank 3 on node2 has exited with 0 while the others wait": three("blocked", allReduce,
			stacks.Worker{Rank: 3, Host: "node2", State: stacks.Exited}),
		"rank 3 on node1 waits in broadcast while the others wait in all_reduce": three("blocked", allReduce, worker(3, "blocked", broadcast)),
		"rank 2 on node1 waits in broadcast and rank 3 on node1 waits in _engine_run_backward while the others wait in all_reduce": {
			worker(0, "blocked", allReduce), worker(1, "blocked", allReduce), worker(2, "blocked", broadcast),
			worker(3, "blocked", backward),
		},
		"the ranks wait in different operations, which never match: rank 0 in _engine_run_backward, rank 1 in all_reduce; " +
			"which rank is the reason cannot be told from outside": {worker(0, "blocked", backward), worker(1, "blocked", allReduce)},
		"which rank is the reason cannot be told from outside": three("blocked", allReduce),
		"rank 0 on node1 is in update, train.py:21":            {worker(0, "blocked", lock)},
		"ranks 2-3 are in update, train.py:21 while the others wait for a peer": {
			worker(0, "blocked", allReduce), worker(1, "blocked", allReduce), worker(2, "blocked", lock), worker(3, "blocked", lock),
		},
	} {
		if got := Judge(workers, nil, false).Suspect(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestBriefIsShort checks that people get at most 30 lines, and each odd rank is named.
func TestBriefIsShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := [][]stacks.Frame{allReduce, broadcast, backward, inModel, save, lock}
		activities := []stacks.Activity{"blocked", "stopped", "disk", "polling", "spinning"}
		var workers []stacks.Worker
		for rank := range rapid.IntRange(1, 40).Draw(t, "ranks") {
			frames := rapid.SampledFrom(kinds).Draw(t, "frames")
			for range rapid.IntRange(0, 30).Draw(t, "depth") {
				frames = append(slices.Clip(frames), stacks.Frame{File: "/srv/deep.py", Line: rank % 3, Function: "deep"})
			}
			workers = append(workers, worker(rank, rapid.SampledFrom(activities).Draw(t, "activity"), frames))
		}
		f := Judge(workers, []string{"node7"}, false)
		_, text := f.Brief("all stacks: /logs/hang.txt", "the job goes on")
		if n := strings.Count(text, "\n"); n > 29 {
			t.Fatalf("%d lines:\n%s", n, text)
		}
		if f.Hang && len(f.Odd) > 0 && !strings.Contains(text, "rank") {
			t.Fatalf("nobody is named:\n%s", text)
		}
	})
}
