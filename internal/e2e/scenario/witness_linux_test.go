package scenario

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// witnessJob is a job whose workers only prove when they were alive (witness.py), watched by an observer. Its tests
// ask whether workers of two worlds were ever alive at once.
type witnessJob struct {
	*job

	python string
	mark   string
	obs    *observer
}

// newWitnessJob makes a lab and a job without agents.
func newWitnessJob(t testing.TB, n int) *witnessJob {
	t.Helper()
	python := testenv.Python(t)
	dir := t.TempDir()
	j := &witnessJob{
		job:    &job{t: t, lab: hosts.New(t, n), dir: dir, worker: []string{workerScript(t, "witness.py"), "--dir", dir}},
		python: python, mark: testenv.Mark(),
	}
	t.Cleanup(func() {
		if t.Failed() {
			worlds := liveWorlds(j.lives())
			t.Log(strings.Join(worlds[max(0, len(worlds)-40):], "\n"))
		}
	})
	j.obs = observe(t, j.mark)
	return j
}

// start starts an agent on a host, with further arguments for its workers.
func (j *witnessJob) start(h *hosts.Host, worker []string, flags ...string) *program {
	j.t.Helper()
	return j.startBy(h, nil, worker, flags...)
}

// startBy is start, with the launcher started by the command by.
func (j *witnessJob) startBy(h *hosts.Host, by, worker []string, flags ...string) *program {
	j.t.Helper()
	args := slices.Concat(by, []string{testenv.Binary(j.t)}, j.flags, flags, j.worker, worker)
	cmd := h.Command(j.t.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+j.python, j.mark)
	p := run(j.t, h, fmt.Sprintf("%s agent %d", h.Name, len(j.agents)), cmd)
	j.agents = append(j.agents, p)
	return p
}

// lives returns what is proven so far.
func (j *witnessJob) lives() []life {
	written, err := readLives(j.dir)
	if err != nil {
		j.t.Fatal(err)
	}
	return merge(written, j.obs.seen())
}

// workers returns the workers that are alive on a host.
func (j *witnessJob) workers(h *hosts.Host) []life {
	return slices.DeleteFunc(j.obs.alive(), func(l life) bool { return l.Host != h.Name })
}

// awaitWorld waits until all workers of a world other than after have been alive for a second, on at least these hosts.
// It returns that world.
func (j *witnessJob) awaitWorld(after world, on ...*hosts.Host) world {
	j.t.Helper()
	var found world
	await(j.t, fmt.Sprintf("a world after %s on %d hosts", after, len(on)), func() bool {
		for w, there := range settled(j.obs.alive()) {
			missing := slices.ContainsFunc(on, func(h *hosts.Host) bool { return !there[h.Name] })
			if w != after && !missing {
				found = w
				return true
			}
		}
		return false
	})
	return found
}

// settled returns the worlds whose ranks have all been alive for a second, and their hosts.
func settled(alive []life) map[world]map[string]bool {
	ranks, on := map[world]map[int]bool{}, map[world]map[string]bool{}
	for _, l := range alive {
		if l.last-l.first < 1 {
			continue
		}
		w := l.world()
		if ranks[w] == nil {
			ranks[w], on[w] = map[int]bool{}, map[string]bool{}
		}
		ranks[w][l.Rank], on[w][l.Host] = true, true
	}
	for _, l := range alive {
		if w := l.world(); len(ranks[w]) != l.World {
			delete(on, w)
		}
	}
	return on
}

// safe fails the test for each violation that checkLives finds in the lives so far.
func (j *witnessJob) safe() {
	j.t.Helper()
	for _, bad := range checkLives(j.lives()) {
		j.t.Error(bad)
	}
}

// watchFor lets the job run for a time in which something must not happen.
func (j *witnessJob) watchFor(d time.Duration) {
	j.t.Helper()
	select {
	case <-time.After(d):
	case <-j.t.Context().Done():
	}
}

// stopAll ends the agents, then the stores, and checks that nothing is left of them.
func (j *witnessJob) stopAll() {
	j.t.Helper()
	for _, some := range [][]*program{j.agents, j.others} {
		for _, p := range some {
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if the process has ended
		}
		for _, p := range some {
			p.code()
		}
	}
	j.lab.NothingLeft(20 * time.Second)
}
