package rpc_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/rpc"
	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

// seedVariable sets the random seed, to repeat a run.
const seedVariable = "RPC_TEST_SEED"

// dynamicGroup is a dynamic group of processes. The test knows what each member must see.
type dynamicGroup struct {
	t     *testing.T
	store string
	slow  string // delayed address of the same store, for some members
	mark  string
	rng   *rand.Rand
	live  []*memberProcess // by id
	ids   int              // used so far
}

func newDynamicGroup(t *testing.T, store string) *dynamicGroup {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv(seedVariable), fmt.Sprint(time.Now().UnixNano())), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s=%d repeats this run", seedVariable, seed)
	c := &dynamicGroup{
		t: t, store: store, slow: slowStore(t, store, 5*time.Millisecond),
		mark: testenv.Mark(), rng: rand.New(rand.NewPCG(seed, 0)),
	}
	t.Cleanup(func() { testenv.NothingLeft(t, c.mark) })
	return c
}

// join adds a member with device maps for some names, which may have no member.
func (c *dynamicGroup) join(name string) {
	c.t.Helper()
	cfg := memberConfig{Name: name, Store: c.store, Devices: 4, Maps: map[string]device.Map{}}
	if c.rng.IntN(4) == 0 {
		cfg.Store = c.slow
	}
	for range c.rng.IntN(3) {
		if other := memberName(c.rng.IntN(mostMembers)); other != name {
			cfg.Maps[other] = device.Map{device.CUDA(c.rng.IntN(4)): device.CUDA(c.rng.IntN(4))}
		}
	}
	r := newMemberProcess(c.t, exec.CommandContext(c.t.Context(), os.Args[0]), c.mark, cfg) //nolint:gosec // this program
	r.id = r.receive().ID
	if r.id != c.ids {
		c.t.Fatalf("%s has id %d, want %d", name, r.id, c.ids)
	}
	c.ids++
	c.live = append(c.live, r)
}

// leave makes a member leave and exit.
func (c *dynamicGroup) leave(i int) {
	c.t.Helper()
	r := c.live[i]
	c.live = slices.Delete(c.live, i, i+1)
	r.request("leave")
	c.check("immediately after " + r.Name + " has left")
	r.end()
}

// killed kills a member and returns the time until all others have noticed.
func (c *dynamicGroup) killed(i int) time.Duration {
	c.t.Helper()
	r := c.live[i]
	c.live = slices.Delete(c.live, i, i+1)
	for _, other := range c.live {
		other.send("lacks " + r.Name)
	}
	begun := time.Now()
	r.kill()
	for _, other := range c.live {
		other.receive()
	}
	return time.Since(begun)
}

// check compares what every member sees with what it must see.
func (c *dynamicGroup) check(when string) {
	c.t.Helper()
	for _, r := range c.live {
		r.send("view")
	}
	for i, r := range c.live {
		if diff := gocmp.Diff(c.wantReport(i), r.receive(), cmpopts.EquateEmpty()); diff != "" {
			c.t.Fatalf("%s %s sees (-want +got):\n%s", when, r.Name, diff)
		}
	}
}

// wantReport returns what a member must see.
func (c *dynamicGroup) wantReport(i int) memberReport {
	self := c.live[i]
	want := memberReport{ID: self.id, Reverse: map[string]device.Map{}}
	for _, m := range self.Maps {
		for own := range m {
			want.Devices = append(want.Devices, own)
		}
	}
	for _, other := range c.live {
		want.View = append(want.View, rpc.WorkerInfo{Name: other.Name, ID: other.id})
		for theirs, own := range other.Maps[self.Name] {
			want.Reverse[other.Name] = device.Map{own: theirs}
			want.Devices = append(want.Devices, own)
		}
	}
	slices.SortFunc(want.Devices, device.Compare)
	want.Devices = slices.Compact(want.Devices)
	return want
}

// mostMembers is the maximum number of members at a time.
const mostMembers = 10

func memberName(i int) string { return fmt.Sprintf("member%d", i) }

// unused returns a name that no member has. A former member may have had it.
func (c *dynamicGroup) unused() string {
	for {
		name := memberName(c.rng.IntN(mostMembers))
		if !slices.ContainsFunc(c.live, func(r *memberProcess) bool { return r.Name == name }) {
			return name
		}
	}
}

// change makes members join, leave and die at random for a number of operations. At the end all leave.
func (c *dynamicGroup) change(operations int) {
	c.t.Helper()
	var notices []time.Duration
	for op := range operations {
		n, draw := len(c.live), c.rng.IntN(10)
		i := c.rng.IntN(max(1, n))
		switch {
		case n <= 1 || n < mostMembers && draw < 5:
			name := c.unused()
			c.join(name)
			c.check(fmt.Sprintf("operation %d: immediately after %s has joined", op, name))
		case draw < 7:
			c.leave(i)
		default:
			name := c.live[i].Name
			notices = append(notices, c.killed(i))
			c.check(fmt.Sprintf("operation %d: after %s was killed", op, name))
		}
	}
	for len(c.live) > 0 {
		c.leave(len(c.live) - 1)
	}
	if slices.Sort(notices); len(notices) > 0 {
		at := func(share float64) time.Duration {
			return notices[int(share*float64(len(notices)-1))].Round(100 * time.Microsecond)
		}
		c.t.Logf("%d of %d operations were kills; all others noticed after: median %v, 90 %% %v, at most %v",
			len(notices), operations, at(0.5), at(0.9), at(1))
	}
}

// Members join, leave and are killed at random. All members see joins and leaves immediately, and deaths soon.
func TestDynamicProcesses(t *testing.T) {
	t.Parallel()
	newDynamicGroup(t, startStore(t)).change(testenv.Repeat(t, 60, 4000))
}

// torchStore serves a TCPStore of torch until its stdin ends, and prints the port.
const torchStore = `
import os, sys, torch.distributed as dist
libuv = os.environ.get("USE_LIBUV") != "0"
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=libuv)
print(store.port, flush=True)
sys.stdin.read()
`

// The same test with the TCPStore of torch. Its server without libuv, that of 2.14, wakes no waiter at a CompareSet.
func TestDynamicProcessesOnTorchStore(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2.14", testenv.Official} {
		if version == testenv.Official && !testenv.Whole(t) {
			continue
		}
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			testDynamicProcessesOn(t, testenv.Torch(t, version))
		})
	}
}

func testDynamicProcessesOn(t *testing.T, python string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, "-c", torchStore)
	in, out := testenv.StartWithPipes(t, cmd)
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	var port int
	if _, err := fmt.Fscan(out, &port); err != nil {
		t.Fatal(err)
	}
	newDynamicGroup(t, fmt.Sprintf("127.0.0.1:%d", port)).change(testenv.Repeat(t, 20, 800))
}

// A stopped member is evicted, and notices that when it continues. The other members stay.
func TestDynamicProcessStopped(t *testing.T) {
	t.Parallel()
	c := newDynamicGroup(t, startStore(t))
	for i := range 3 {
		c.join(memberName(i))
	}
	stopped := c.live[1]
	c.live = slices.Delete(c.live, 1, 2)
	begun := time.Now()
	stopped.signal(syscall.SIGSTOP)
	for _, r := range c.live {
		r.send("lacks " + stopped.Name)
	}
	for _, r := range c.live {
		r.receive()
	}
	t.Logf("evicted after %v", time.Since(begun).Round(time.Millisecond))
	c.check("after the eviction")
	begun = time.Now()
	stopped.send("evicted")
	stopped.signal(syscall.SIGCONT)
	if report := stopped.receive(); !report.is(rpc.ErrEvicted) {
		t.Errorf("a call of the evicted member: %+v", report)
	}
	t.Logf("it noticed the eviction after %v", time.Since(begun).Round(time.Millisecond))
	stopped.end()
	c.check("after the evicted member continued")
	c.join(stopped.Name)
	c.check("after it joined again")
	for len(c.live) > 0 {
		c.leave(0)
	}
}
