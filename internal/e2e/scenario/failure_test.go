package scenario

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestWorkerFails makes a worker fail while a restart is left. All nodes continue from the checkpoint in a new round,
// whose store has no keys of the round before.
func TestWorkerFails(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		worker  []string
		backend backend
	}{
		{"exit code, on node2", []string{"--fail-on=node2", "--fail-with=42"}, apart[0]},
		{"SIGKILL, rank 0", []string{"--fail-with=-9"}, apart[1]},
	}
	for _, tt := range tests {
		t.Run(tt.backend.name+", "+tt.name, func(t *testing.T) {
			t.Parallel()
			j := newElastic(t, 1)
			if strings.HasPrefix(tt.name, "SIGKILL") {
				j.useTorchInSoak()
			}
			j.worker = append(j.worker, "--fail-at=10")
			j.worker = append(j.worker, tt.worker...)
			tt.backend.use(j, j.lab.Hosts[4])
			j.startAll(j.nodes()...)
			j.awaitRestart(1)
			j.finish()
			j.end(0, nil, expected{worlds: []int{4, 4}, restarts: 1})
		})
	}
}

// awaitRestart waits until a round after that many charged restarts has made a few steps.
func (j *job) awaitRestart(n int) {
	j.t.Helper()
	await(j.t, fmt.Sprintf("restart %d", n), func() bool {
		if len(j.ended()) > 0 {
			j.t.Fatalf("an agent has ended before restart %d", n)
		}
		for _, r := range rounds(j.record()) {
			if r.lines[0].Restart == n && len(r.steps) >= 5 {
				return true
			}
		}
		return false
	})
}

// TestJobFails makes a worker fail while no restart is left. Every node ends with its exit code and names it. So does
// an agent of the same launch that starts later.
func TestJobFails(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		worker  string
		backend backend
		code    int
		reason  string
	}{
		{"exit code", "--fail-with=42", apart[1], 42, "worker_failed"},
		{"SIGKILL", "--fail-with=-9", apart[0], 137, "worker_killed"},
	}
	for _, tt := range tests {
		t.Run(tt.backend.name+", "+tt.name, func(t *testing.T) {
			t.Parallel()
			j := newElastic(t, 0)
			j.useTorchInSoak()
			j.flags = append(j.flags, "--launch-id=one")
			j.worker = append(j.worker, "--fail-at=10", "--fail-on=node2", tt.worker)
			tt.backend.use(j, j.lab.Hosts[4])
			j.startAll(j.nodes()...)
			for _, a := range j.agents {
				a.code()
			}
			late := j.start(j.lab.Hosts[4])
			late.code()
			guilty := -1
			for _, l := range j.record() {
				if l.Host == "node2" {
					guilty = l.Rank
				}
			}
			want := fmt.Sprintf("elasticrun: exit_code=%d reason=%s rank=%d local_rank=0 summary=", tt.code, tt.reason, guilty)
			for _, a := range j.agents {
				if last := a.tail(1); !strings.HasPrefix(strings.TrimSpace(last), want) {
					t.Errorf("%s wrote in the end\n%s\nwant\n%s", a.name, last, want)
				}
				if !strings.Contains(a.text(), "node2") {
					t.Errorf("%s does not name node2", a.name)
				}
			}
			j.end(tt.code, nil, expected{worlds: []int{4}, steps: 9})
		})
	}
}

// TestLateJoiner starts an agent of the launch on a new node after the job has succeeded. TestJobFails has late
// agents too.
func TestLateJoiner(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	for _, backend := range apart {
		t.Run(backend.name, func(t *testing.T) {
			t.Parallel()
			j := newElastic(t, 0)
			j.flags = append(j.flags, "--launch-id=one")
			backend.use(j, j.lab.Hosts[4])
			j.startAll(j.nodes()...)
			j.awaitRound(-1, 4)
			j.finish()
			for _, a := range j.agents {
				a.code()
			}
			late := j.start(j.lab.Hosts[4])
			j.end(0, nil, expected{worlds: []int{4}})
			if text := late.text(); !strings.Contains(text, `nothing was started here: run "job" already finished (succeeded `) {
				t.Errorf("the late joiner wrote %q", late.text())
			}
		})
	}
}

// TestRerun starts all agents again after the job has ended. They were started by hand, so only their hosts distinguish
// a rerun from late nodes. A host that was not in the job is refused.
func TestRerun(t *testing.T) {
	t.Parallel()
	for _, backend := range append(slices.Clone(apart), backend{"an agent", (*job).useAgent}) {
		t.Run(backend.name, func(t *testing.T) {
			t.Parallel()
			j := newElastic(t, 0)
			backend.use(j, j.lab.Hosts[4])
			for run, code := range []int{0, 5, 0} {
				j.worker = []string{"--no-python", "sh", "-c", fmt.Sprintf("echo run %d; exit %d", run, code)}
				before := len(j.agents)
				j.startAll(j.nodes()...)
				for _, a := range j.agents[before:] {
					got := a.code()
					ran := strings.Contains(
						a.text(),
						fmt.Sprint("run ", run),
					) // unless it was stopped first, because another agent had failed
					if got != code || code == 0 && !ran {
						t.Errorf("run %d: %s ended with %d:\n%s", run, a.name, got, a.text())
					}
				}
			}
			if backend.name == "an agent" { // with the agent, all knowledge of the run has gone
				return
			}
			if newHost := j.start(j.lab.Hosts[4]); newHost.code() != 73 || strings.Contains(newHost.text(), "run 2") {
				t.Errorf("a host that was not in the job:\n%s", newHost.text())
			}
		})
	}
}

// TestStoreHostDies removes the agent that hosts the store alone. The others end after the join timeout, with a line
// that names the alternatives. make test runs it once with and once without a notice to the others.
func TestStoreHostDies(t *testing.T) {
	t.Parallel()
	for _, departure := range departures {
		if departure.name == "SIGTERM" { // this agent ends in an orderly way
			continue
		}
		if !testenv.Whole(t) && departure.name == "power loss" {
			continue
		}
		t.Run(departure.name, func(t *testing.T) {
			t.Parallel()
			j := newElastic(t, 0)
			if departure.name == departures[0].name {
				j.useTorchInSoak()
			}
			j.useAgent(nil)
			for i, flag := range j.flags {
				if strings.HasPrefix(flag, "--rdzv-conf=") {
					j.flags[i] += ",voters=1"
				}
			}
			j.startAll(j.nodes()...)
			j.awaitRound(-1, 4)
			departure.leave(j, j.agents[0])
			begin := time.Now()
			for _, a := range j.agents[1:] {
				if code := a.code(); code != exitRendezvous {
					t.Errorf("%s ended with %d, want %d", a.name, code, exitRendezvous)
				}
				if !strings.Contains(a.text(), "elasticrun store") {
					t.Errorf("%s does not name elasticrun store", a.name)
				}
			}
			// A busy machine is slow; the benchmark has the figure.
			if took := time.Since(begin); took > keepAlive+joinTimeout+30*time.Second {
				t.Errorf("the others took %v to end, want about %v at most", took, keepAlive+joinTimeout)
			}
			// A host that was cut off continues alone for the join timeout, which this test does not check.
			_ = j.agents[0].cmd.Process.Signal(syscall.SIGTERM)
			code := j.agents[0].code()
			j.end(exitRendezvous, map[*program]int{j.agents[0]: code}, expected{worlds: []int{4}})
		})
	}
}

// TestStoreRestarts kills elasticrun store and starts it again. With its data kept the job does not notice. Without,
// all agents join the new store, and the job continues from its checkpoint.
func TestStoreRestarts(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{true, false} {
		t.Run(fmt.Sprintf("data kept %v", keeps), func(t *testing.T) {
			t.Parallel()
			j := newElastic(t, 0)
			if !keeps {
				j.useTorchInSoak()
			}
			on := j.lab.Hosts[4]
			at := on.Addr + ":29400"
			flags := []string{"--listen=" + at}
			if keeps {
				flags = append(flags, "--data-dir="+t.TempDir())
			}
			j.flags = append(j.flags, "--rdzv-endpoint="+at)
			store := j.startStore(on, flags...)
			j.startAll(j.nodes()...)
			j.awaitRound(-1, 4)
			_ = store.cmd.Process.Kill()
			store.code()
			j.startStore(on, flags...)
			if !keeps {
				made := lastStep(j.record())
				await(t, "steps with the new store", func() bool { return lastStep(j.record()) > made+5 })
				j.finish()
				j.stop(0, nil)
				for _, a := range j.agents {
					if !strings.Contains(a.text(), "joining again") {
						t.Errorf("%s does not say that it has joined anew", a.name)
					}
				}
				return
			}
			enough := lastStep(j.record()) + int(2*keepAlive/stepTime)
			await(
				t,
				"the job to go on for longer than the keep-alive time",
				func() bool { return lastStep(j.record()) > enough },
			)
			j.finish()
			j.end(0, nil, expected{worlds: []int{4}})
		})
	}
}

// lastStep returns the latest recorded step.
func lastStep(lines []line) int {
	last := 0
	for _, l := range lines {
		last = max(last, l.Step)
	}
	return last
}
