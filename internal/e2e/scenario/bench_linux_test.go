package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
)

// disturbance is an event whose standstill a benchmark measures.
type disturbance struct {
	name string
	// do disturbs a running job of four agents and returns the time of the disturbance.
	do func(j *job, workers []line) float64
	// last waits for the end of the standstill and returns its time.
	last func(lines []line, round int) (at float64, over bool)
	// ofHost says that the disturbed agent is the one at the endpoint, and that other agents keep its store too. ofTwo
	// says that the job has two nodes.
	ofHost, ofTwo bool
}

// BenchmarkStandstill measures how long a job of 2 to 5 nodes, four of which are present, stands still after a
// disturbance. It reports the median and the maximum of -benchtime=Nx runs. The workers start and stop at once.
func BenchmarkStandstill(b *testing.B) {
	disturbances := []disturbance{
		{name: "an agent is killed", do: killed(3), last: restarted(3)},
		{name: "a link is cut", do: cut(3), last: restarted(3)},
		{name: "a worker fails, until its peers are stopped", do: fail, last: peersStopped},
		{name: "a node comes", do: join, last: restarted(5)},
		{name: "the store's host is killed", do: killed(0), last: restarted(3), ofHost: true},
		{name: "the store's host is cut off", do: cut(0), last: restarted(3), ofHost: true},
		{name: "the store's host is frozen", do: frozen(0), last: restarted(3), ofHost: true},
		{name: "the store's host of two nodes is killed", do: killed(0), last: restarted(1), ofHost: true, ofTwo: true},
	}
	for i, backend := range append([]backend{{"c10d on an agent", (*job).useAgent}}, apart...) {
		for _, d := range disturbances {
			if d.ofHost && i > 0 {
				continue
			}
			b.Run(backend.name+": "+d.name, func(b *testing.B) {
				lab := hosts.New(b, 6)
				var took []float64
				for range b.N {
					took = append(took, standstill(b, lab, backend, d))
				}
				slices.Sort(took)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(1000*took[len(took)/2], "ms-median")
				b.ReportMetric(1000*took[len(took)-1], "ms-max")
			})
		}
	}
}

// standstill runs a job, disturbs it once and returns the standstill in seconds.
func standstill(b *testing.B, lab *hosts.Lab, backend backend, d disturbance) float64 {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	j := &job{t: b, lab: lab, dir: b.TempDir(), trainer: plain, worker: []string{self}}
	if err := os.Mkdir(filepath.Join(j.dir, "log"), 0o755); err != nil {
		b.Fatal(err)
	}
	b.Setenv(stampEnv, j.dir)
	j.flags = []string{
		"--nnodes=2:5", ownRunID(), "--max-restarts=1", "--no-python", "--log-level=info",
		"--rdzv-conf=join_settle=0,last_call_timeout=1," + keepAliveConf,
	}
	defer func() {
		for _, h := range lab.Hosts {
			h.PowerOff()
			h.Heal()
		}
	}()
	backend.use(j, lab.Hosts[5])
	nodes := 4
	if d.ofTwo {
		nodes, j.flags[0] = 2, "--nnodes=1:2"
	}
	j.start(lab.Hosts[0])
	j.startAll(lab.Hosts[1:nodes]...)
	var workers []line
	await(b, "all workers", func() bool {
		workers = slices.DeleteFunc(j.record(), func(l line) bool { return l.World != nodes || l.Event != "start" })
		return len(workers) == nodes
	})
	if d.ofTwo {
		j.agents[0].await(takesOver)
	} else if d.ofHost {
		for _, a := range j.agents {
			a.await(survivesLoss)
		}
	}
	begin := d.do(j, workers)
	var end float64
	await(b, "the end of the standstill", func() bool {
		var over bool
		end, over = d.last(j.record(), workers[0].Round)
		return over
	})
	return end - begin
}

// restarted returns the start time of the last worker of the next round, which has that many workers.
func restarted(world int) func([]line, int) (float64, bool) {
	return func(lines []line, before int) (float64, bool) {
		lines = slices.DeleteFunc(
			lines,
			func(l line) bool { return l.Round <= before || l.World != world || l.Event != "start" },
		)
		if len(lines) < world {
			return 0, false
		}
		return lines[len(lines)-1].Time, true
	}
}

// peersStopped returns the time at which the last of three peers received its stop signal.
func peersStopped(lines []line, round int) (float64, bool) {
	lines = slices.DeleteFunc(lines, func(l line) bool { return l.Round != round || l.Event != "term" })
	if len(lines) < 3 {
		return 0, false
	}
	return lines[len(lines)-1].Time, true
}

func killed(i int) func(*job, []line) float64 {
	return func(j *job, _ []line) float64 {
		begin := monotonic()
		_ = syscall.Kill(j.agents[i].agentPID(), syscall.SIGKILL)
		return begin
	}
}

func frozen(i int) func(*job, []line) float64 {
	return func(j *job, _ []line) float64 {
		begin := monotonic()
		_ = syscall.Kill(j.agents[i].agentPID(), syscall.SIGSTOP)
		return begin
	}
}

func cut(i int) func(*job, []line) float64 {
	return func(j *job, _ []line) float64 {
		begin := monotonic()
		j.agents[i].host.Cut()
		return begin
	}
}

func fail(j *job, workers []line) float64 {
	j.t.Helper()
	begin := monotonic()
	if err := syscall.Kill(workers[3].PID, syscall.SIGKILL); err != nil {
		j.t.Fatal(fmt.Errorf("kill a worker: %w", err))
	}
	return begin
}

func join(j *job, _ []line) float64 {
	begin := monotonic()
	j.start(j.lab.Hosts[4])
	return begin
}
