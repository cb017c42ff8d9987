package scenario

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/internal/status"
)

// spareNone has the agents keep the store together. Three of the nodes have an endpoint, and faults are on all of them.
func (c *chaos) spareNone(nodes, least, voters int) (flags []string, endpoint string) {
	c.has.nodes, c.has.least, c.has.anywhere, c.has.proxied = nodes, least, true, nil
	c.voters, c.conf = voters, fmt.Sprintf(",voters=%d", voters)
	return []string{"--rdzv-backend=c10d", "--log-level=" + cmp.Or(os.Getenv("LOGLEVEL"), "info")}, strings.Join([]string{
		"node0:29400", "node1:29400", "node2:29400",
	}, ",")
}

// peersOf returns the hosts to which a fault of a host's link disturbs the connections: the store's host, or all others
// if agents keep the store.
func (c *chaos) peersOf(host *hosts.Host) []*hosts.Host {
	if c.storeHost != nil {
		return []*hosts.Host{c.storeHost}
	}
	return slices.DeleteFunc(slices.Clone(c.lab.Hosts), func(h *hosts.Host) bool { return h == host })
}

// runInTurn executes a plan in which one node at a time is out of order: each fault begins once the job has recovered
// from the one before it. It returns early if it finds a defect.
func (c *chaos) runInTurn(faults []fault, length time.Duration) (bad []string) {
	c.t.Helper()
	begin := time.Now()
	was, slowest := c.recovered(world{}, 0), time.Duration(0)
	for i, f := range faults {
		if time.Since(begin) > length || c.t.Context().Err() != nil {
			c.t.Logf("the time was over after %d faults", i)
			return nil
		}
		started, after := c.starts(), world{}
		if endsWorld(f) && len(c.workers(c.agents[f.node].host)) > 0 { // a quarantined node has none
			after = was
		}
		c.note("begin", f)
		end := c.begin(f)
		c.keepFor(max(f.last, settle))
		if end != nil {
			c.note("end", f)
			end()
		}
		ended := time.Now()
		was = c.recovered(after, f.node)
		if took := time.Since(ended); took > slowest {
			slowest = took
			c.t.Logf("%.1f s to recover from %s", took.Seconds(), f)
		}
		for n, count := range c.starts() {
			if n != f.node && count != started[n] {
				bad = append(bad, fmt.Sprintf("%s has ended, although only node%d was out of order: %s", c.agents[n].name, f.node,
					codesOf(c.agents[n])))
			}
		}
		if bad = append(bad, c.check()...); len(bad) > 0 {
			return append(bad, "after "+f.String())
		}
	}
	return nil
}

// endsWorld reports whether a fault ends the world of its node for certain.
func endsWorld(f fault) bool {
	return slices.Contains([]string{killAgent, killGuard, killBoth, termAgent, orphan, powerOff}, f.kind)
}

// starts returns how often each agent has been started.
func (c *chaos) starts() []int {
	var counts []int
	for _, s := range c.agents {
		counts = append(counts, s.started)
	}
	return counts
}

// keepFor restarts services that end, for a time.
func (c *chaos) keepFor(d time.Duration) {
	c.t.Helper()
	begin := time.Now()
	again := time.NewTicker(stepOf)
	defer again.Stop()
	for time.Since(begin) < d && c.t.Context().Err() == nil {
		c.keep()
		<-again.C
	}
}

// recovered waits until all nodes have been in one world, other than the given one, for half a keep-alive time, and any
// one node may be lost. It returns that world. node is the one that was out of order last.
func (c *chaos) recovered(after world, node int) world {
	c.t.Helper()
	const stable = keepAlive / 2
	var last world
	var since time.Time // when the job was first seen to be well, without a break
	for begin := time.Now(); time.Since(begin) < healBound && c.t.Context().Err() == nil; {
		c.keepFor(stepOf * 10)
		now, nodes := world{}, 0
		for w, on := range settled(c.obs.alive()) {
			if w != after && c.complete(on) {
				now, nodes = w, len(on)
			}
		}
		if now == (world{}) || now != last || !c.survives(node, nodes) {
			last, since = now, time.Now()
		}
		if now != (world{}) && time.Since(since) > stable {
			return now
		}
	}
	c.t.Fatalf("%v after the last fault the job has not recovered", healBound)
	return world{}
}

// survives asks the agent after the given node about the job. It reports whether any one node may be lost, and as many
// agents as possible keep the store. Only nodes of a round must keep it, not quarantined ones.
func (c *chaos) survives(node, nodes int) bool {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), keepAlive)
	defer cancel()
	asked := c.agents[(node+1)%len(c.agents)]
	flags := slices.DeleteFunc(slices.Clone(asked.args), func(arg string) bool {
		return !strings.HasPrefix(arg, "--rdzv-id=") && !strings.HasPrefix(arg, "--rdzv-endpoint=")
	})
	cmd := asked.host.Command(ctx, testenv.Binary(c.t), append([]string{"status", "--json"}, flags...)...)
	out, err := cmd.Output()
	var job status.Job
	if err != nil || json.Unmarshal(out, &job) != nil || job.Store == nil {
		return false
	}
	want := min(c.voters, nodes)
	return job.Store.SurvivesLoss && len(job.Store.Voters) >= want-(want+1)%2
}

// check returns the violations so far. A job with faults in turn has one store, whose rounds have different numbers.
func (c *chaos) check() []string {
	lives := c.lives()
	bad := checkLives(lives)
	if c.has.inTurn {
		bad = append(bad, checkOneStore(lives)...)
	}
	return bad
}

// checkOneStore returns a line for each round number that two worlds have. A second store would count its rounds from
// the beginning again.
func checkOneStore(lives []life) []string {
	ports := map[int]map[int]bool{}
	for _, l := range lives {
		if ports[l.Round] == nil {
			ports[l.Round] = map[int]bool{}
		}
		ports[l.Round][l.Port] = true
	}
	var bad []string
	for _, round := range slices.Sorted(maps.Keys(ports)) {
		if n := len(ports[round]); n > 1 {
			bad = append(bad, fmt.Sprintf("%d worlds have round number %d: the job has lost its store", n, round))
		}
	}
	return bad
}

func TestCheckOneStore(t *testing.T) {
	if bad := checkOneStore(soundLives(4, 3, 4)); len(bad) > 0 {
		t.Errorf("one store: %q", bad)
	}
	lives := soundLives(4, 3, 4)
	for i := range lives {
		lives[i].Round %= 2
	}
	if bad := checkOneStore(lives); len(bad) != 1 || !strings.HasPrefix(bad[0], "2 worlds have round number 0") {
		t.Errorf("the third world is another store's first: %q", bad)
	}
}

// TestChaosInTurn disturbs a job as TestChaos does, but one node at a time, any of them. The job must never end, nor
// any agent of another node, and its store must not be lost.
func TestChaosInTurn(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	for _, backend := range []chaosBackend{
		{"3 voters", func(c *chaos) ([]string, string) { return c.spareNone(4, 2, 3) }},
		{"5 voters", func(c *chaos) ([]string, string) { return c.spareNone(5, 1, 5) }},
	} {
		t.Run(backend.name, func(t *testing.T) {
			t.Parallel()
			use := backend.use
			backend.use = func(c *chaos) ([]string, string) {
				c.has.inTurn = true
				return use(c)
			}
			runChaos(t, backend, anySeed(t), time.Duration(testenv.Repeat(t, 10, 20*60))*time.Second)
		})
	}
}
