package procs

import (
	"syscall"
	"testing"
)

// TestSignalHandlers checks that a signal reaches the workers that handle it, and the program of a shell script, but
// kills nobody.
func TestSignalHandlers(t *testing.T) {
	traps := `trap 'echo got; exit 0' USR1; echo up; while :; do sleep 0.01; done`
	direct, wrapped, deaf := shell(t, 0, traps), shell(t, 1, "sh -c \""+traps+"\"; exit 3"), shell(t, 2, "echo up; exec sleep 100")
	g := startGroup(t, direct, wrapped, deaf)
	for _, s := range []Spec{direct, wrapped, deaf} {
		awaitLine(t, s)
	}
	had := map[int]bool{}
	if g.SignalHandlers(syscall.SIGUSR1, had) || !had[0] || !had[1] || had[2] {
		t.Fatalf("had the signal: %v", had)
	}
	exits := map[int]Exit{}
	for range 2 {
		x := <-g.Exits()
		exits[x.LocalRank] = x
	}
	if x := exits[0]; !x.Success() {
		t.Errorf("the worker: %+v", x)
	}
	if x := exits[1]; x.Code != 3 {
		t.Errorf("the shell script: %+v", x)
	}
	if g.SignalHandlers(syscall.SIGUSR1, had) {
		t.Error("all have had it")
	}
	stopGroup(t, g, orderly)
	if x := <-g.Exits(); x.LocalRank != 2 || !x.Stopped {
		t.Errorf("the deaf worker: %+v", x)
	}
}

// TestSignalHandlersOfPipeline checks a shell script with several children, one of which is the worker.
func TestSignalHandlersOfPipeline(t *testing.T) {
	traps := `trap 'echo got; exit 0' USR1; echo up; while :; do sleep 0.01; done`
	spec := shell(t, 0, "sleep 100 & sh -c \""+traps+"\" | cat; kill %1; exit 3")
	g := startGroup(t, spec)
	awaitLine(t, spec)
	had := map[int]bool{}
	if !g.SignalHandlers(syscall.SIGUSR1, had) {
		t.Fatalf("had the signal: %v", had)
	}
	if x := <-g.Exits(); x.Code != 3 {
		t.Errorf("the shell script: %+v", x)
	}
	stopGroup(t, g, orderly)
}
