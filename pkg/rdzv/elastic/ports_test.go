package elastic

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// freePorts returns n ports that nobody listens at, below those that the kernel hands out: a test elsewhere that asks
// the kernel for a port gets none of them.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	const low, high = 16000, 32000
	var ports []int
	for len(ports) < n {
		port := low + rand.N(high-low)
		ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil || slices.Contains(ports, port) {
			continue
		}
		ports = append(ports, port)
		_ = ln.Close()
	}
	return ports
}

func listenAt(t *testing.T, port int) net.Listener {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// unknownPeer listens at a port and closes every connection at once, or, if silent, leaves connections open.
func unknownPeer(t *testing.T, port int, silent bool) (leave func()) {
	t.Helper()
	ln := listenAt(t, port)
	var serving sync.WaitGroup
	if !silent {
		serving.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				_ = c.Close()
			}
		})
	}
	return sync.OnceFunc(func() {
		_ = ln.Close()
		serving.Wait()
	})
}

// testMachine has agents of several runs on one machine, with the same candidate ports.
type testMachine struct {
	t      *testing.T
	ports  []int
	mu     sync.Mutex
	agents []*C10d
	stores map[string][]coord.Store // by run id
}

func newMachine(t *testing.T, candidates int) *testMachine {
	t.Helper()
	return &testMachine{t: t, ports: freePorts(t, candidates), stores: map[string][]coord.Store{}}
}

// open starts an agent of a run.
func (p *testMachine) open(runID string) {
	a := &C10d{
		RunID: runID, Version: "test", TTL: time.Minute, Host: "127.0.0.1", Ports: p.ports, Hint: -1,
		Logger: zerolog.Nop(),
	}
	store, err := a.Open(p.t.Context())
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.t.Errorf("an agent of %s: %v", runID, err)
		return
	}
	p.agents, p.stores[runID] = append(p.agents, a), append(p.stores[runID], store)
}

// check writes a key of every agent to the agent's store. Each store must then have the keys of its own run only.
func (p *testMachine) check(run func(runID string) (agents int)) {
	p.t.Helper()
	ctx := p.t.Context()
	for runID, stores := range p.stores {
		if len(stores) != run(runID) {
			p.t.Errorf("%d agents of %s, want %d", len(stores), runID, run(runID))
		}
		var want []string
		for _, s := range stores {
			key := rounds.PrefixOf(runID) + rounds.PrefixAgent + string(s.Session())
			op := coord.Op{Key: key, Value: []byte("here"), Owned: true}
			if _, err := s.Commit(ctx, nil, []coord.Op{op}); err != nil {
				p.t.Fatal(err)
			}
			want = append(want, key)
		}
		slices.Sort(want)
		for _, s := range stores {
			var got []string
			found, err := listKeys(ctx, s, rounds.PrefixOf(runID)+rounds.PrefixAgent)
			for _, e := range found {
				got = append(got, e.Key)
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				p.t.Fatalf("an agent of %s finds others (-want +got), %v:\n%s", runID, err, diff)
			}
		}
	}
}

// close closes everything, the clients first.
func (p *testMachine) close() {
	for _, stores := range p.stores {
		for _, s := range stores {
			_ = s.Close(p.t.Context())
		}
	}
	for _, a := range p.agents {
		if err := a.Close(p.t.Context(), true); err != nil {
			p.t.Error(err)
		}
	}
}

// The agents of each run find each other and no others, whichever starts first and whoever has one of the ports.
func TestCandidatePorts(t *testing.T) {
	const agents = 4
	for i := range testenv.Repeat(t, 15, 800) {
		p := newMachine(t, 5)
		random := rand.New(rand.NewPCG(1, uint64(i)))
		leave := func() {}
		switch random.IntN(3) {
		case 0:
			leave = unknownPeer(t, p.ports[random.IntN(2)], false)
		case 1: // a job that is about to end has the first port
			p.open(fmt.Sprint(uniqueRunID(t), "-before-", i))
			last := p.agents[0]
			p.agents = nil
			clear(p.stores)
			leave = sync.OnceFunc(func() {
				if err := last.Close(t.Context(), true); err != nil {
					t.Error(err)
				}
			})
		}
		a, b := fmt.Sprint(uniqueRunID(t), "-a-", i), fmt.Sprint(uniqueRunID(t), "-b-", i)
		line := append(slices.Repeat([]string{a}, agents), slices.Repeat([]string{b}, agents)...)
		random.Shuffle(len(line), func(i, j int) { line[i], line[j] = line[j], line[i] })
		leaves := random.IntN(len(line))
		var running sync.WaitGroup
		for n, runID := range line {
			running.Go(func() { p.open(runID) })
			if n == leaves {
				running.Go(leave)
			}
		}
		running.Wait()
		p.open(a) // comes late: a port before that of its store may be free by now
		p.open(b)
		p.check(func(string) int { return agents + 1 })
		p.close()
		if t.Failed() {
			t.Fatalf("repetition %d, %v", i, line)
		}
	}
}

// A program that has the first port accepts connections and sends nothing.
func TestSilentPeer(t *testing.T) {
	t.Parallel() // takes as long as a store may take to answer
	p := newMachine(t, 2)
	t.Cleanup(unknownPeer(t, p.ports[0], true))
	var running sync.WaitGroup
	for range 3 {
		running.Go(func() { p.open(uniqueRunID(t)) })
	}
	running.Wait()
	p.check(func(string) int { return 3 })
	p.close()
}

// The store of the run was started separately, so it has no claim, and is at the second port. The first port is taken.
func TestOwnStoreAtACandidate(t *testing.T) {
	p := newMachine(t, 3)
	t.Cleanup(unknownPeer(t, p.ports[0], false))
	all := p.ports
	p.ports = all[1:2]
	p.open(uniqueRunID(t))
	p.ports = all
	p.open(uniqueRunID(t))
	p.check(func(string) int { return 2 })
	if p.agents[1].hosted() != nil {
		t.Error("the second agent hosts a store of its own")
	}
	p.close()
}

// The host says who has each of the ports.
func TestNoPortFree(t *testing.T) {
	p := newMachine(t, 2)
	leave := unknownPeer(t, p.ports[0], false)
	defer leave()
	last := p.ports
	p.ports = last[1:]
	p.open(uniqueRunID(t) + "-other")
	p.ports = last
	a := &C10d{RunID: uniqueRunID(t), Host: "127.0.0.1", Ports: p.ports, Hint: -1, Logger: zerolog.Nop()}
	_, err := a.attempt(t.Context())
	var taken *PortsTakenError
	if !errors.As(err, &taken) || !errors.Is(err, rdzv.ErrConnection) || !permanent(err) || !portsTaken(err) ||
		len(taken.Ports) != 2 {
		t.Fatalf("got %v", err)
	}
	var other *coord.RefusedError
	if p := taken.Ports[1]; p.Port != last[1] || !errors.Is(p.Err, syscall.EADDRINUSE) ||
		!errors.As(p.Found, &other) || other.Reason != coord.ReasonRunID {
		t.Errorf("the second port: %+v", p)
	}
	for _, want := range []string{
		fmt.Sprintf("no port of rendezvous endpoint 127.0.0.1 can be used: %d: address already in use, and connect to",
			last[0]),
		fmt.Sprintf("; %d: address already in use, and the store at", last[1]),
		"the store belongs to another job",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	leave()
	p.ports = last
	p.open(uniqueRunID(t)) // the claim has been released
	if _, err := machine.ClaimRun(uniqueRunID(t), 0); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second claim: %v", err)
	}
	p.close()
	again, err := machine.ClaimRun(uniqueRunID(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}

// Two spellings of one machine's endpoint make two stores, which gives a warning. A store that replaces another does
// not.
func TestTwoStoresOfOneRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs more than one loopback address")
	}
	port := testenv.FreePort(t)
	host := func(addr, runID string) (*C10d, *bytes.Buffer) {
		firstLog := &bytes.Buffer{}
		a := &C10d{
			RunID: runID, Host: addr, Ports: []int{port}, Hint: -1,
			Logger: zerolog.New(firstLog).Level(zerolog.WarnLevel),
		}
		if _, err := a.Open(t.Context()); err != nil || a.hosted() == nil {
			t.Fatalf("%s does not host: %v", addr, err)
		}
		return a, firstLog
	}
	end := func(a *C10d) {
		if err := a.Close(t.Context(), true); err != nil {
			t.Error(err)
		}
	}
	run := uniqueRunID(t)
	first, firstLog := host("127.0.0.1", run)
	second, secondLog := host("127.0.0.2", run)
	other, otherLog := host("127.0.0.3", run+"-other")
	if !strings.Contains(secondLog.String(), "use the same endpoint") {
		t.Errorf("the second store of the run logs %q", secondLog)
	}
	end(second)
	end(first)
	again, againLog := host("127.0.0.1", run)
	end(again)
	end(other)
	for _, b := range []*bytes.Buffer{firstLog, otherLog, againLog} {
		if b.Len() > 0 {
			t.Errorf("unexpected warning: %q", b)
		}
	}
}
