package scenario

import (
	"cmp"
	"slices"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
)

// action is the beginning or the end of a fault.
type action struct {
	at    time.Duration
	fault int // index of the fault in the plan
	end   bool
}

// actions returns the actions of a plan, sorted by time.
func actions(faults []fault) []action {
	var all []action
	for i, f := range faults {
		all = append(all, action{at: f.at, fault: i})
		if f.last > 0 {
			all = append(all, action{at: f.at + f.last, fault: i, end: true})
		}
	}
	slices.SortStableFunc(all, func(a, b action) int { return cmp.Compare(a.at, b.at) })
	return all
}

// begin starts a fault and returns the function that ends it, or nil if the fault has ended.
func (c *chaos) begin(f fault) (end func()) {
	c.t.Helper()
	if f.node < 0 {
		return c.beginAtStore(f)
	}
	node, host := c.agents[f.node], c.agents[f.node].host
	if end, is := c.beginOnLink(f, host); is {
		return end
	}
	guard := func(sig syscall.Signal) { node.signal(sig) }
	switch f.kind {
	case killAgent:
		signalTo(node.agent(), syscall.SIGKILL)
	case killGuard:
		guard(syscall.SIGKILL)
	case killBoth:
		agent := node.agent()
		guard(syscall.SIGKILL)
		signalTo(agent, syscall.SIGKILL)
	case termAgent:
		guard(syscall.SIGTERM)
	case stopAgent:
		return stopped(node.agent())
	case stopGuard:
		if node.p != nil {
			return stopped(node.p.cmd.Process.Pid)
		}
	case orphan:
		c.orphan(node)
	case killWorker, stopWorker, failWorker:
		return c.beginOnWorker(f, host)
	case powerOff:
		node.off = true
		host.PowerOff()
		return func() {
			host.Heal()
			node.off = false
		}
	case fullLog:
		c.logDisk.Fill()
		return c.logDisk.Free
	case hungLog:
		c.logDisk.Freeze()
		return c.logDisk.Thaw
	default:
		c.t.Fatalf("nobody knows how to begin %s", f)
	}
	return nil
}

// beginOnLink is begin for faults of a node's network.
func (c *chaos) beginOnLink(f fault, host *hosts.Host) (end func(), is bool) {
	c.t.Helper()
	peers := c.peersOf(host)
	// each returns the end of a fault that begin starts and that Reach ends.
	each := func(begin func(peer *hosts.Host), end func(peer *hosts.Host)) (func(), bool) {
		for _, peer := range peers {
			begin(peer)
		}
		return func() {
			for _, peer := range peers {
				end(peer)
			}
		}, true
	}
	switch f.kind {
	case cutLink:
		host.Cut()
		return host.Heal, true
	case loseSent:
		return each(host.DropTo, host.Reach)
	case loseReceived:
		return each(func(peer *hosts.Host) { peer.DropTo(host) }, func(peer *hosts.Host) { peer.Reach(host) })
	case loseBetween:
		next := c.agents[(f.node+1)%len(c.agents)].host
		host.DropTo(next)
		next.DropTo(host)
		return func() {
			host.Reach(next)
			next.Reach(host)
		}, true
	case reset:
		return each(host.ResetAt, func(peer *hosts.Host) { peer.Reach(host) })
	case killProxy:
		c.proxy.off = true
		c.proxy.signal(syscall.SIGKILL)
		return func() { c.proxy.off = false }, true
	}
	return nil, false
}

// beginAtStore is begin for faults of the store.
func (c *chaos) beginAtStore(f fault) (end func()) {
	c.t.Helper()
	switch f.kind {
	case killStore:
		c.store.off = true
		c.store.signal(syscall.SIGKILL)
		return func() { c.store.off = false }
	case stopStore:
		if c.store.p != nil {
			return stopped(c.store.p.cmd.Process.Pid)
		}
	case cutStore:
		c.storeHost.Cut()
		return c.storeHost.Heal
	case fullStore:
		c.dataDisk.Fill()
		return c.dataDisk.Free
	default:
		c.t.Fatalf("nobody knows how to begin %s", f)
	}
	return nil
}

// beginOnWorker is begin for a fault of one worker on a host. It does nothing if the host has no worker.
func (c *chaos) beginOnWorker(f fault, host *hosts.Host) (end func()) {
	c.t.Helper()
	workers := slices.DeleteFunc(c.workers(host), func(l life) bool { return !parentIsAgent(l) })
	if len(workers) == 0 {
		return nil
	}
	worker := slices.MaxFunc(workers, func(a, b life) int { return cmp.Compare(a.Rank, b.Rank) })
	switch f.kind {
	case killWorker:
		signalTo(worker.PID, syscall.SIGKILL)
	case failWorker:
		c.failOn(worker.Rank)
	case stopWorker:
		return stopped(worker.PID)
	}
	return nil
}

// orphan kills an agent while its guard is stopped, for less than the keep-alive time.
func (c *chaos) orphan(node *service) {
	c.t.Helper()
	agent := node.agent()
	if agent == 0 {
		return
	}
	node.signal(syscall.SIGSTOP)
	signalTo(agent, syscall.SIGKILL)
	// The node's next agent starts before the guard continues.
	next := *node
	next.p, next.again = nil, time.Time{}
	next.keep()
	c.watchFor(keepAlive / 6)
	node.signal(syscall.SIGCONT)
	old := node.p
	node.p, node.started = next.p, next.started
	node.codes[old.code()]++
}

// stopped stops a process and returns the function that continues it. That function checks the start time, because
// the process id can belong to another process by then.
func stopped(pid int) (end func()) {
	if pid == 0 {
		return nil
	}
	start := hosts.StartOf(pid)
	signalTo(pid, syscall.SIGSTOP)
	return func() {
		if start != "" && hosts.StartOf(pid) == start {
			signalTo(pid, syscall.SIGCONT)
		}
	}
}
