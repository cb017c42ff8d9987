package proctree

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseStat(t *testing.T) {
	const rest = " S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345 100 200"
	tests := []struct {
		name, stat string
		want       Process
		ok         bool
	}{
		{
			"plain",
			"42 (sleep)" + rest,
			Process{PID: 42, PPID: 7, Session: 9, State: 'S', Threads: 3, Start: "12345", Comm: "sleep"},
			true,
		},
		{
			"odd name",
			"42 (a) R 1 (b)" + rest,
			Process{PID: 42, PPID: 7, Session: 9, State: 'S', Threads: 3, Start: "12345", Comm: "a) R 1 (b"},
			true,
		},
		{"empty", "", Process{}, false},
		{"cut short", "42 (sleep) S 7 8", Process{}, false},
		{"no name", "42 S 7 8 9", Process{}, false},
		{"not a number", "x (sleep)" + rest, Process{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := parseStat([]byte(tt.stat))
			if ok != tt.ok {
				t.Fatalf("ok = %v", ok)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if p, ok := Read(os.Getpid()); !ok || p.PID != os.Getpid() || p.PPID != os.Getppid() {
		t.Errorf("this process: %+v, %v", p, ok)
	}
}

func TestDead(t *testing.T) {
	for _, tt := range []struct {
		p    Process
		want bool
	}{
		{Process{State: 'Z', Threads: 1}, true},
		{Process{State: 'X'}, true},
		{Process{State: 'Z', Threads: 2}, false}, // its first thread has ended, others have not
		{Process{State: 'D', Threads: 1}, false},
	} {
		if got := tt.p.Dead(); got != tt.want {
			t.Errorf("%+v: dead = %v", tt.p, got)
		}
	}
}

func TestDescendants(t *testing.T) {
	p := func(pid, ppid, session int) Process { return Process{PID: pid, PPID: ppid, Session: session} }
	all := []Process{
		p(1, 0, 1), p(10, 1, 1), // 10 is the agent, in session 1
		p(20, 10, 20), p(21, 20, 20), p(22, 21, 22), // a worker, its child, a child with its own session
		p(30, 10, 1), p(31, 30, 1), // a helper of the agent and its child
		p(40, 1, 40), // an unrelated process
	}
	var got []int
	for _, d := range Descendants(10, all, func(p Process) bool { return p.Session != 1 }) {
		got = append(got, d.PID)
	}
	if diff := cmp.Diff([]int{20, 21, 22}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
