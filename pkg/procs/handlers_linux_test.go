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
	signaled := map[int]bool{}
	if g.SignalHandlers(syscall.SIGUSR1, signaled) || !signaled[0] || !signaled[1] || signaled[2] {
		t.Fatalf("signaled: %v", signaled)
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
	if g.SignalHandlers(syscall.SIGUSR1, signaled) {
		t.Error("all workers were signaled")
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
	signaled := map[int]bool{}
	if !g.SignalHandlers(syscall.SIGUSR1, signaled) {
		t.Fatalf("signaled: %v", signaled)
	}
	if x := <-g.Exits(); x.Code != 3 {
		t.Errorf("the shell script: %+v", x)
	}
	stopGroup(t, g, orderly)
}
