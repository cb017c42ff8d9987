package procs

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseStat(t *testing.T) {
	const rest = " S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345 100 200"
	tests := []struct {
		name, stat string
		want       process
		ok         bool
	}{
		{"plain", "42 (sleep)" + rest, process{pid: 42, ppid: 7, session: 9, state: 'S', threads: 3, start: "12345", comm: "sleep"}, true},
		{"odd name", "42 (a) R 1 (b)" + rest, process{pid: 42, ppid: 7, session: 9, state: 'S', threads: 3, start: "12345", comm: "a) R 1 (b"}, true},
		{"empty", "", process{}, false},
		{"cut short", "42 (sleep) S 7 8", process{}, false},
		{"no name", "42 S 7 8 9", process{}, false},
		{"not a number", "x (sleep)" + rest, process{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := parseStat([]byte(tt.stat))
			if ok != tt.ok {
				t.Fatalf("ok = %v", ok)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(process{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if p, ok := readProcess(os.Getpid()); !ok || p.pid != os.Getpid() || p.ppid != os.Getppid() {
		t.Errorf("this process: %+v, %v", p, ok)
	}
}

func TestDead(t *testing.T) {
	for _, tt := range []struct {
		p    process
		want bool
	}{
		{process{state: 'Z', threads: 1}, true},
		{process{state: 'X'}, true},
		{process{state: 'Z', threads: 2}, false}, // its first thread has ended, others have not
		{process{state: 'D', threads: 1}, false},
	} {
		if got := tt.p.dead(); got != tt.want {
			t.Errorf("%+v: dead = %v", tt.p, got)
		}
	}
}

func TestDescendants(t *testing.T) {
	p := func(pid, ppid, session int) process { return process{pid: pid, ppid: ppid, session: session} }
	all := []process{
		p(1, 0, 1), p(10, 1, 1), // 10 is the agent, in session 1
		p(20, 10, 20), p(21, 20, 20), p(22, 21, 22), // a worker, its child, a child with its own session
		p(30, 10, 1), p(31, 30, 1), // a helper of the agent and its child
		p(40, 1, 40), // a stranger
	}
	var got []int
	for _, d := range descendants(10, all, func(p process) bool { return p.session != 1 }) {
		got = append(got, d.pid)
	}
	if diff := cmp.Diff([]int{20, 21, 22}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A thousand processes in sessions of their own, half of which ignore SIGTERM: to end them takes hardly longer than the
// time that they are given, and no more memory than to end a few.
func TestThousandLeftBehind(t *testing.T) {
	spec := shell(t, 0, `i=0; while [ $i -lt 500 ]; do setsid sleep 1000 & setsid sh -c 'trap "" TERM; exec sleep 1000' & i=$((i+1)); done; echo; exit 3`)
	g := startGroup(t, spec)
	<-g.Exits()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	stopGroup(t, g, Ladder{Signal: syscall.SIGTERM, Grace: time.Minute, Leftovers: time.Second})
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	t.Logf("took %v", took)
	if took > 15*time.Second {
		t.Errorf("took %v", took)
	}
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 64<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
}
