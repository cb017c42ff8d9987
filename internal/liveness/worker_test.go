package liveness

import (
	"hash/maphash"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/pystack"
)

// at returns a stack whose innermost frame is at that line.
func at(file string, line int) []pystack.Thread {
	return []pystack.Thread{{Main: true, Frames: []pystack.Frame{
		{File: file, Line: line, Function: "f"}, {File: "/srv/train.py", Line: 3, Function: "main"},
	}}}
}

// step is the number of a step that was reported.
func step(n int64) optional { return optional{n, true} }

func TestSigns(t *testing.T) {
	base := observation{
		known: true, pid: 7, state: 'S', main: threadTime{10, 20}, cpu: 300, bytes: 1 << 20, faults: 1000, output: 50,
		step: step(4), heartbeat: heartbeat{modified: 9, step: step(2)},
	}
	const in = 10 * time.Second
	for _, tt := range []struct {
		name   string
		change func(o *observation)
		want   sign
	}{
		{"nothing", func(*observation) {}, noSign},
		{"another step", func(o *observation) { o.step = step(5) }, stepSign},
		{"an earlier step", func(o *observation) { o.step = step(0) }, stepSign},
		{"a heartbeat", func(o *observation) { o.heartbeat.modified++ }, heartbeatSign},
		{"a heartbeat with a step", func(o *observation) { o.heartbeat = heartbeat{10, step(3)} }, stepSign},
		{"output", func(o *observation) { o.output, o.main.switches = 51, 11 }, outputSign},
		{"output of another thread", func(o *observation) { o.output = 51 }, noSign},
		{"output of another thread that works", func(o *observation) { o.output, o.cpu = 51, 350 }, outputSign},
		{"output of another thread that idles", func(o *observation) { o.output, o.cpu = 51, 349 }, noSign},
		{"much I/O", func(o *observation) { o.bytes += 640 << 10 }, bytesSign},
		{"a trickle", func(o *observation) { o.bytes += 639 << 10 }, noSign},
		{"many page faults", func(o *observation) { o.faults += 160 }, faultsSign},
		{"few page faults", func(o *observation) { o.faults += 159 }, noSign},
		{"own CPU time", func(o *observation) { o.cpu += 1000; o.main.cpu += 1000; o.main.switches += 50 }, noSign},
		{"the counters of another process", func(o *observation) { o.pid, o.bytes, o.faults = 8, 1<<30, 1<<20 }, noSign},
		{"no answer", func(o *observation) { o.known, o.step = false, step(9) }, noSign},
		{"the end", func(o *observation) { o.ended = true }, exitSign},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, now := newWorker(0, 7), base
			w.observe(base, in)
			tt.change(&now)
			if w.observe(now, in); w.shown.first() != tt.want {
				t.Errorf("shows %q, want %q", w.shown.first(), tt.want)
			}
		})
	}
}

// A short sample needs as many bytes and faults as a second.
func TestSignsOfAShortSample(t *testing.T) {
	w := newWorker(0, 7)
	w.observe(observation{known: true, pid: 7, bytes: 60 << 10, faults: 60}, 100*time.Millisecond)
	if w.shown != 0 {
		t.Errorf("shows %q", w.shown.first())
	}
}

func TestProcessesBelow(t *testing.T) {
	const in = 10 * time.Second
	child := func(exe string, cpu, bytes, faults uint64) process {
		return process{id: processID{8, 80}, exe: exe, cpu: cpu, bytes: bytes, faults: faults}
	}
	root := process{id: processID{7, 70}, exe: "/usr/bin/python3"}
	const python, other = "/usr/bin/python3", "/usr/bin/cc1plus"
	for _, tt := range []struct {
		name        string
		before, now []process
		want        sign
	}{
		{"nothing changes", []process{child(python, 1, 1, 1)}, []process{child(python, 1, 1, 1)}, noSign},
		{"a new child", nil, []process{child(python, 0, 0, 0)}, childSign},
		{"a child is gone", []process{child(python, 0, 0, 0)}, nil, childSign},
		{
			"a pid is used again",
			[]process{child(python, 0, 0, 0)},
			[]process{{id: processID{8, 81}, exe: python}},
			childSign,
		},
		{"a loader spins", []process{child(python, 0, 0, 0)}, []process{child(python, 1000, 0, 0)}, noSign},
		{"a loader reads", []process{child(python, 0, 0, 0)}, []process{child(python, 0, 640<<10, 0)}, bytesSign},
		{"a loader fills memory", []process{child(python, 0, 0, 0)}, []process{child(python, 0, 0, 160)}, faultsSign},
		{"a compiler works", []process{child(other, 0, 0, 0)}, []process{child(other, 100, 0, 0)}, childSign},
		{
			"a script of its own works",
			[]process{{id: processID{8, 80}, exe: python, args: "python3 prepare.py"}},
			[]process{{id: processID{8, 80}, exe: python, args: "python3 prepare.py", cpu: 100}},
			childSign,
		},
		{
			"a loader that was spawned spins",
			[]process{{id: processID{8, 80}, exe: python, args: "python3 -c from multiprocessing.spawn import"}},
			[]process{{id: processID{8, 80}, exe: python, args: "python3 -c from multiprocessing.spawn import", cpu: 100}},
			noSign,
		},
		{"a copy", []process{child(other, 0, 0, 0)}, []process{child(other, 0, 640<<10, 0)}, bytesSign},
		{"a monitor", []process{child(other, 0, 0, 0)}, []process{child(other, 50, 100<<10, 1000)}, noSign},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorker(0, 7)
			w.addTree(append(tt.before, root))
			w.observe(observation{known: true, pid: 7}, in)
			if w.addTree(append(tt.now, root)); w.shown.first() != tt.want {
				t.Errorf("shows %q, want %q", w.shown.first(), tt.want)
			}
		})
	}
	t.Run("Python below a shell spins", func(t *testing.T) {
		w := newWorker(0, 7)
		w.addStacks(stackRead{known: true, pid: 8, threads: at("a.py", 1)}, maphash.MakeSeed())
		shell := process{id: processID{7, 70}, exe: "/bin/sh"}
		w.shown = 0
		w.addTree([]process{shell, child(python, 0, 0, 0)})
		w.observe(observation{known: true, pid: 8}, in)
		if w.addTree([]process{shell, child(python, 1000, 0, 0)}); w.shown != 0 {
			t.Errorf("shows %q", w.shown.first())
		}
	})
}

// While the main thread stands still, output counts if another program below the worker may have written it.
func TestOutputOfAnotherProgram(t *testing.T) {
	const python = "/usr/bin/python3"
	list := func(pid, parent int, exe, args string) process {
		return process{id: processID{pid, 70}, parent: parent, state: 'S', exe: exe, args: args}
	}
	worker, zombie := list(7, 1, python, "python3 wrap.py"), list(8, 7, "", "")
	zombie.state = 'Z'
	shell, below := list(7, 1, "/bin/sh", "sh run.sh"), list(9, 7, python, "python3 train.py")
	for _, tt := range []struct {
		name    string
		subject int
		tree    []process
		want    sign
	}{
		{"alone", 7, []process{worker}, noSign},
		{"a loader", 7, []process{worker, list(8, 7, python, "python3 wrap.py")}, noSign},
		{"a loader that has ended", 7, []process{worker, zombie}, noSign},
		{"a tracker", 7, []process{worker, list(8, 7, python, "python3 -c from multiprocessing.resource_tracker import")}, noSign},
		{"a script", 7, []process{worker, list(8, 7, python, "python3 train.py")}, outputSign},
		{"a program", 7, []process{worker, list(8, 7, "/srv/train", "train")}, outputSign},
		{"only a shell above", 9, []process{shell, below}, noSign},
		{"two shells above", 9, []process{shell, list(8, 7, "/bin/sh", "sh -c"), list(9, 8, python, "")}, noSign},
		{"beside a helper", 9, []process{shell, below, list(10, 7, python, "python3 helper.py")}, outputSign},
		{"the subject is not there", 9, []process{shell, list(10, 7, "/srv/train", "train")}, noSign},
		{"not known", 7, nil, noSign},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(time.Hour, []Worker{{PID: 7}})
			w := n.workers[0]
			w.python = tt.subject
			found := []observation{{known: true, pid: tt.subject, main: threadTime{switches: 1}}}
			n.observe(time.Second, found)
			n.finish()
			if n.observe(time.Second, found); n.wantsTrees() {
				t.Error("the processes are listed without need")
			}
			found[0].output++
			if n.observe(time.Second, found); !n.wantsTrees() {
				t.Fatal("the processes are not listed")
			}
			if n.addTrees([][]process{tt.tree}); w.shown.first() != tt.want {
				t.Errorf("shows %q, want %q", w.shown.first(), tt.want)
			}
		})
	}
}

// A descendant counts as being at work if it uses CPU time, or gets none because the machine is busy.
func TestBusyChild(t *testing.T) {
	list := func(pid int, state byte, cpu uint64) []process {
		return []process{{id: processID{7, 70}, state: 'R', cpu: 10 * cpu}, {id: processID{pid, 80}, name: "cc1", state: state, cpu: cpu}}
	}
	for _, tt := range []struct {
		name        string
		before, now []process
		want        string
	}{
		{"it sleeps", list(8, 'S', 1), list(8, 'S', 2), ""},
		{"it computes", list(8, 'S', 1), list(8, 'S', 6), "pid 8 (cc1) uses CPU time"},
		{"it waits for a CPU", list(8, 'R', 1), list(8, 'R', 1), "pid 8 (cc1) uses CPU time"},
		{"it wakes up", list(8, 'S', 1), list(8, 'R', 1), ""},
		{"it is new", nil, list(8, 'R', 9), ""},
		{"it is the worker's Python", list(9, 'R', 1), list(9, 'R', 90), ""},
	} {
		if got := busyChild(7, 9, tt.before, tt.now); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// stackSample takes a sample of a worker whose main thread has so many context switches and is at the line.
func stackSample(w *worker, switches uint64, line int, seed maphash.Seed) sign {
	w.observe(observation{known: true, pid: 7, main: threadTime{switches: switches}}, time.Second)
	if w.wish() != noStacks {
		w.addStacks(stackRead{known: true, pid: 7, threads: at("/srv/train.py", line)}, seed)
	}
	return w.shown.first()
}

// Going round in a few lines is no progress; a loop that visits many is.
func TestFrames(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines int
		want  int // signs in 100 samples
	}{
		{"a spin over 3 lines", 3, 3},
		{"16 lines", 16, 16},
		{"a loop of 17 lines", 17, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, seed, signs := newWorker(0, 7), maphash.MakeSeed(), 0
			for i := range 100 {
				if stackSample(w, uint64(i+1), i%tt.lines, seed) == framesSign {
					signs++
				}
			}
			if signs != tt.want {
				t.Errorf("%d signs, want %d", signs, tt.want)
			}
		})
	}
}

// A main thread that stands still is read once more after it has run, which is no sign.
func TestFrozen(t *testing.T) {
	w, seed := newWorker(0, 7), maphash.MakeSeed()
	stackSample(w, 1, 5, seed)
	w.observe(observation{known: true, pid: 7, main: threadTime{switches: 2}, output: 9}, time.Second)
	if w.shown.first() != outputSign || w.wish() != mainStack {
		t.Fatalf("shows %q, wishes %d", w.shown.first(), w.wish())
	}
	w.observe(observation{known: true, pid: 7, main: threadTime{switches: 2}, output: 9}, time.Second)
	if w.wish() != mainStack {
		t.Error("the stack that was not read is not wished for")
	}
	if w.addStacks(stackRead{known: true, pid: 7, threads: at("/srv/train.py", 99)}, seed); w.shown != 0 {
		t.Errorf("a late read shows %q", w.shown.first())
	}
	w.observe(observation{known: true, pid: 7, main: threadTime{switches: 2}, output: 9}, time.Second)
	if w.wish() != noStacks {
		t.Error("a stack is wished for that cannot have changed")
	}
}

// When the Python process below a worker was found, its counters begin anew.
func TestAnotherProcess(t *testing.T) {
	w := newWorker(0, 7)
	o := observation{known: true, pid: 7, main: threadTime{5, 5}}
	w.observe(o, time.Second)
	o.pid, o.main = 8, threadTime{9, 9}
	if w.observe(o, time.Second); w.ran || w.share != 0 {
		t.Error("the counters of two processes were compared")
	}
}

// While the main thread waits for other threads, their stacks count.
func TestOtherThreads(t *testing.T) {
	w, seed := newWorker(0, 7), maphash.MakeSeed()
	stackSample(w, 1, 5, seed)
	var shown []string
	for i, line := range []int{1, 2, 1, 2} {
		w.observe(observation{known: true, pid: 7, main: threadTime{switches: 1}, cpu: uint64(5 * (i + 1))}, time.Second)
		if w.wish() != allStacks {
			t.Fatal("not all stacks are wished for")
		}
		threads := append(at("/srv/train.py", 5), pystack.Thread{ID: 9, Frames: []pystack.Frame{{Line: line}}})
		w.addStacks(stackRead{known: true, pid: 7, threads: threads}, seed)
		shown = append(shown, w.shown.first().String())
	}
	if diff := cmp.Diff([]string{"frames", "frames", "", ""}, shown); diff != "" {
		t.Error(diff)
	}
}

func TestHeld(t *testing.T) {
	const library, user = "/usr/lib/python3.11/", "/srv/"
	for _, tt := range []struct {
		name string
		o    observation
		file string
		want string
	}{
		{"nothing", observation{}, user + "train.py", ""},
		{"a tracer", observation{tracer: 5}, user + "train.py", "process 5 traces it"},
		{"a full console", observation{unread: true}, user + "train.py", "its output is not read: the console has no room"},
		{"a terminal", observation{atTerminal: true}, user + "train.py", "it waits for input from a terminal"},
		{"pdb", observation{}, library + "pdb.py", "it is in the debugger pdb"},
		{"the loop of pdb", observation{}, library + "cmd.py", "it is in the debugger cmd"},
		{"the user's own cmd.py", observation{}, user + "cmd.py", ""},
		{"a package's code.py", observation{}, library + "site-packages/x/code.py", ""},
		{"IPython", observation{}, library + "site-packages/IPython/core/a.py", "it is in the debugger IPython"},
		{"debugpy", observation{}, library + "site-packages/debugpy/_vendored/pydevd/a.py", "it is in the debugger debugpy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorker(0, 7)
			tt.o.known, tt.o.pid = true, 7
			w.observe(tt.o, time.Second)
			w.addStacks(stackRead{known: true, pid: 7, threads: at(tt.file, 1)}, maphash.MakeSeed())
			if got := w.held(); got != tt.want {
				t.Errorf("held %q, want %q", got, tt.want)
			}
		})
	}
}

// The searches for Python become rarer if there is none.
func TestNotPython(t *testing.T) {
	w, searches := newWorker(0, 7), 0
	for i := range 100 {
		w.observe(observation{known: true, pid: 7, main: threadTime{switches: uint64(i + 1)}, output: int64(i)}, time.Second)
		if i > 0 && w.shown.first() != outputSign {
			t.Fatal("output of a worker without Python is no sign")
		}
		if w.wish() != noStacks {
			searches++
			w.addStacks(stackRead{known: true}, maphash.MakeSeed())
		}
	}
	if searches > 10 {
		t.Errorf("%d searches in 100 samples", searches)
	}
	still := w.last // the main thread waits for a child, which prints
	still.output++
	if w.observe(still, time.Second); w.shown.first() != outputSign {
		t.Errorf("shows %q", w.shown.first())
	}
}
