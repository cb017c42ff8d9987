package scenario

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// chaos is a job of four nodes, with faults by a plan. Agents that end are restarted.
type chaos struct {
	*witnessJob

	agents            []*service
	store, proxy      *service    // store is nil if agents keep it, proxy if all nodes reach it directly
	storeHost         *hosts.Host // nil if it is wherever agents lead
	logDisk, dataDisk *testenv.Disk
	has               setup
	voters            int      // the most agents that keep the store; 0 if none does
	conf              string   // further options of the rendezvous, each with a comma before it
	done              []string // actions so far, with their times
}

// chaosBackend is a place of the job's rendezvous.
type chaosBackend struct {
	name string
	use  func(c *chaos) (flags []string, endpoint string)
}

var chaosBackends = []chaosBackend{
	{"c10d", func(c *chaos) ([]string, string) {
		c.storeHost = c.lab.Hosts[0]
		return []string{"--rdzv-backend=c10d"}, c.storeHost.Addr + ":29400"
	}},
	{"any node", func(c *chaos) ([]string, string) { return c.spareNone(4, 1, 3) }},
	{"store", func(c *chaos) ([]string, string) {
		at := c.useOwnStore(29400)
		c.store.args = []string{testenv.Binary(c.t), "store", "--listen=" + at}
		return []string{"--rdzv-backend=c10d"}, at
	}},
	{"store with data", func(c *chaos) ([]string, string) {
		at := c.useOwnStore(29400)
		c.dataDisk, c.has.dataDisk = testenv.NewDisk(c.t, 32), true
		data := filepath.Join(c.dataDisk.Path, "data")
		c.store.args = []string{testenv.Binary(c.t), "store", "--listen=" + at, "--data-dir=" + data}
		return []string{"--rdzv-backend=c10d"}, at
	}},
	{"etcd", func(c *chaos) ([]string, string) {
		at := c.useOwnStore(2379)
		c.dataDisk, c.has.dataDisk = testenv.NewDisk(c.t, 400), true // etcd preallocates 64 MB at a time
		c.store.args = append(etcdCommand(c.t, c.storeHost, filepath.Join(c.dataDisk.Path, "data")),
			"--log-level", "error", "--logger", "zap")
		return []string{"--rdzv-backend=etcd"}, at
	}},
}

// useOwnStore starts the store as a process on node4 and returns its address.
func (c *chaos) useOwnStore(port int) string {
	c.storeHost, c.has.ownStore = c.lab.Hosts[4], true
	c.store = c.service("store", c.storeHost)
	return c.storeHost.Addr + ":" + strconv.Itoa(port)
}

func (c *chaos) service(name string, on *hosts.Host, args ...string) *service {
	c.t.Helper()
	dir := filepath.Join(c.dir, strings.ReplaceAll(name, " ", "-"))
	if err := os.Mkdir(dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	s := &service{
		t: c.t, host: on, name: name, args: args, log: filepath.Join(dir, "output"), codes: map[int]int{}, first: map[int]string{},
		env: []string{"PYTHON_EXEC=" + c.python, "TMPDIR=" + dir, c.mark},
	}
	c.t.Cleanup(func() { // the test's context, which would kill the store, has ended
		if s.p != nil {
			<-s.p.done
		}
		if c.t.Failed() {
			c.t.Logf("---- %s. It wrote:\n%s", codesOf(s), s.tail(60))
		}
	})
	return s
}

// newChaos makes the job.
func newChaos(t *testing.T, backend chaosBackend) *chaos {
	t.Helper()
	c := &chaos{
		witnessJob: newWitnessJob(t, 5),
		has:        setup{nodes: 4, least: 1, detached: []int{3}, proxied: []int{2}, disks: []int{1}},
	}
	c.logDisk = testenv.NewDisk(t, 64)
	use, endpoint := backend.use(c)
	proxyAt := c.lab.Hosts[4].Addr + ":29401"
	if len(c.has.proxied) > 0 {
		c.proxy = c.service("proxy", c.lab.Hosts[4], c.python, workerScript(t, "proxy.py"), proxyAt, endpoint)
	}
	common := slices.Concat([]string{
		testenv.Binary(t), fmt.Sprintf("--nnodes=%d:%d", c.has.least, c.has.nodes), ownRunID(),
		"--max-restarts=1000000", "--max-node-losses=0", "--min-uptime=0",
		"--restart-grace=1", "--shutdown-timeout=1", "--rejoin-timeout=4",
		"--rdzv-conf=last_call_timeout=1,join_timeout=60,result_ttl=3," + keepAliveConf + c.conf,
	}, use)
	for i, own := range [][]string{
		{"--nproc-per-node=2"},
		{"--log-dir=" + filepath.Join(c.logDisk.Path, "logs"), "--redirects=3"},
		{"--nproc-per-node=2"},
		{},
		{},
	}[:c.has.nodes] {
		at := endpoint
		if slices.Contains(c.has.proxied, i) {
			at = proxyAt
		}
		worker := [][]string{nil, nil, {"--ignore-term"}, {"--child", "--detached"}, nil}[i]
		c.agents = append(c.agents, c.service(fmt.Sprintf("node%d", i), c.lab.Hosts[i],
			slices.Concat(common, own, []string{"--rdzv-endpoint=" + at}, c.worker, worker)...))
	}
	return c
}

// services returns all services, stores first.
func (c *chaos) services() []*service {
	var all []*service
	for _, s := range []*service{c.store, c.proxy} {
		if s != nil {
			all = append(all, s)
		}
	}
	return append(all, c.agents...)
}

// keep restarts the services that have ended.
func (c *chaos) keep() {
	c.t.Helper()
	for _, s := range c.services() {
		s.keep()
	}
}

const (
	// stepOf is the interval at which the run looks for due actions.
	stepOf = 10 * time.Millisecond
	// judgeEvery is the interval at which the run checks the lives so far, so that a failed run ends soon.
	judgeEvery = 20 * time.Second
)

// run executes a plan. It returns early if it finds a defect.
func (c *chaos) run(faults []fault, length time.Duration) (bad []string) {
	c.t.Helper()
	begin, judged := time.Now(), time.Now()
	ends := map[int]func(){}
	again := time.NewTicker(stepOf)
	defer again.Stop()
	due := actions(faults)
	for time.Since(begin) < length || len(due) > 0 {
		for len(due) > 0 && time.Since(begin) >= due[0].at {
			a := due[0]
			due = due[1:]
			f := faults[a.fault]
			switch end := ends[a.fault]; {
			case !a.end:
				c.note("begin", f)
				ends[a.fault] = c.begin(f)
			case end != nil:
				c.note("end", f)
				end()
				delete(ends, a.fault)
			}
		}
		c.keep()
		if time.Since(judged) > judgeEvery {
			judged = time.Now()
			if bad = checkLives(c.lives()); len(bad) > 0 {
				break
			}
		}
		select {
		case <-again.C:
		case <-c.t.Context().Done():
			return bad
		}
	}
	for _, end := range ends {
		if end != nil {
			end()
		}
	}
	return bad
}

func (c *chaos) note(what string, f fault) {
	c.done = append(c.done, fmt.Sprintf("%.3f: %s of %s", monotonic(), what, f))
}

// finish waits until all nodes are in one world, ends the workers, and checks how everything ends.
func (c *chaos) finish() {
	c.t.Helper()
	c.healed()
	for i, s := range c.agents {
		for _, odd := range oddCodes(s, slices.Contains(c.has.disks, i)) {
			c.t.Errorf("%s has ended before the job has, with code %s", s.name, odd)
		}
	}
	if err := os.WriteFile(filepath.Join(c.dir, stopFile), nil, 0o600); err != nil {
		c.t.Fatal(err)
	}
	for _, s := range c.agents {
		s.off = true
		if s.p == nil {
			c.t.Errorf("%s does not run", s.name)
		} else if code := s.p.code(); code != 0 {
			c.t.Errorf("%s ended with %d in the end", s.name, code)
		}
	}
	for _, s := range c.services()[:len(c.services())-len(c.agents)] {
		s.off = true
		s.signal(15)
		s.p.code()
	}
	c.lab.NothingLeft(20 * time.Second)
}

// complete reports whether all nodes are in a world. Quarantined nodes may be missing: their workers were killed just
// after they had joined, or they did not reach rank 0 while links were cut.
func (c *chaos) complete(on map[string]bool) bool {
	return len(on) > 0 && !slices.ContainsFunc(c.agents, func(s *service) bool {
		return !on[s.name] && (s.p == nil || !strings.Contains(s.sinceStart(), "this node is quarantined"))
	})
}

// healBound is far longer than any time-out of the job.
const healBound = 3 * time.Minute

// healed waits until all nodes, except quarantined ones, have been in one world for longer than the keep-alive time.
func (c *chaos) healed() {
	c.t.Helper()
	last, since, begin := world{}, time.Now(), time.Now()
	again := time.NewTicker(stepOf)
	defer again.Stop()
	for {
		c.keep()
		together := false
		for w, on := range settled(c.obs.alive()) {
			if c.complete(on) && w != last {
				last, since = w, time.Now()
			}
			together = together || w == last
		}
		if together && time.Since(since) > 2*keepAlive {
			return
		}
		if time.Since(begin) > healBound {
			c.t.Fatalf("%v after all is repaired the nodes are not in one world", healBound)
		}
		<-again.C
	}
}

// TestChaos disturbs a job in all ways that its agents must survive, by a schedule that follows from a seed. Workers
// of two worlds must never be alive at once. After the repair the job must form one world and end with 0.
// ELASTICRUN_SEED repeats a schedule; ELASTICRUN_CHAOS_WITHOUT leaves out the faults whose names it lists, separated
// by commas.
func TestChaos(t *testing.T) {
	t.Parallel()
	for _, backend := range chaosBackends {
		t.Run(backend.name, func(t *testing.T) {
			t.Parallel()
			if backend.name != quickBackend {
				testenv.InSoak(t)
			}
			seed := quickSeed
			if testenv.Whole(t) {
				seed = anySeed(t)
			}
			runChaos(t, backend, seed, time.Duration(testenv.Repeat(t, 10, 20*60))*time.Second)
		})
	}
}

// anySeed returns ELASTICRUN_SEED, or a random seed.
func anySeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("ELASTICRUN_SEED")
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return seed
}

// make test runs this backend only. In 10 s this seed has 11 faults of 10 kinds, which end soon after.
const (
	quickBackend = "store with data"
	quickSeed    = uint64(4921)
)

func runChaos(t *testing.T, backend chaosBackend, seed uint64, length time.Duration) {
	t.Helper()
	t.Logf("ELASTICRUN_SEED=%d repeats this schedule", seed)
	c := newChaos(t, backend)
	c.has.without = strings.Split(os.Getenv("ELASTICRUN_CHAOS_WITHOUT"), ",")
	faults := plan(seed, length, c.has)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what was done:\n%s", strings.Join(c.done, "\n"))
		}
	})
	begin := monotonic()
	run := c.run
	if c.has.inTurn {
		run = c.runInTurn
	}
	bad := run(faults, length)
	if len(bad) == 0 && !t.Failed() {
		c.finish()
		bad = c.check()
	}
	for _, line := range bad {
		t.Error(line)
	}
	lives := c.lives()
	worlds := map[world]bool{}
	for _, l := range lives {
		worlds[l.world()] = true
	}
	t.Logf("%d faults, %d worlds and %d processes in %.0f s; the run began at %.3f",
		len(faults), len(worlds), len(lives), monotonic()-begin, begin)
}
