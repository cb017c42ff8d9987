package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rpc"
	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
)

var (
	echo  = rpc.NewFunc[[]byte, []byte]("echo")
	greet = rpc.NewFunc[string, string]("greet")
	relay = rpc.NewFunc[[]string, string]("relay") // calls relay on the first worker, with the remaining names
	block = rpc.NewFunc[struct{}, struct{}]("block")
)

// common returns the functions that every worker of these tests serves.
func common(tb testing.TB) *rpc.Functions {
	tb.Helper()
	fns := rpc.NewFunctions()
	for _, err := range []error{
		echo.Handle(fns, func(_ context.Context, b []byte) ([]byte, error) { return b, nil }),
		greet.Handle(fns, func(ctx context.Context, name string) (string, error) {
			call, _ := rpc.Incoming(ctx)
			return fmt.Sprintf("%s to %s, from %s", name, call.From.Name, call.Group.Self().Name), nil
		}),
		relay.Handle(fns, func(ctx context.Context, names []string) (string, error) {
			call, _ := rpc.Incoming(ctx)
			if len(names) == 0 {
				return call.Group.Self().Name, nil
			}
			rest, err := relay.Call(ctx, call.Group, names[0], names[1:])
			return call.Group.Self().Name + " " + rest, err
		}),
	} {
		if err != nil {
			tb.Fatal(err)
		}
	}
	return fns
}

func TestStaticGroup(t *testing.T) {
	for _, n := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			groups := newStaticGroup(t, n, func(int) *rpc.Functions { return common(t) }, nil)
			var calls sync.WaitGroup
			for _, from := range groups {
				for _, to := range groups {
					calls.Go(func() {
						got, err := greet.Call(t.Context(), from, to.Self().Name, "hi")
						want := fmt.Sprintf("hi to %s, from %s", from.Self().Name, to.Self().Name)
						if err != nil || got != want {
							t.Errorf("%q, %v; want %q", got, err, want)
						}
					})
				}
				if view := from.View(); len(view.Workers) != n || view.Changed != nil {
					t.Errorf("view = %+v", view)
				}
			}
			calls.Wait()
			last := groups[n-1].Self().Name
			got, err := relay.Call(t.Context(), groups[0], last, []string{"worker0", last, "worker0"})
			if want := strings.Join([]string{last, "worker0", last, "worker0"}, " "); err != nil || got != want {
				t.Errorf("relay = %q, %v; want %q", got, err, want)
			}
			shutdownAll(t, groups)
			if _, err := greet.Call(t.Context(), groups[0], last, ""); !errors.Is(err, rpc.ErrShutdown) {
				t.Errorf("after Shutdown: %v", err)
			}
		})
	}
}

// A member that shuts down serves the others until they have finished.
func TestShutdownWaitsForWork(t *testing.T) {
	// The function calls worker2, which has called Shutdown but serves calls.
	fns, started, finish := blockingFunctions(t, func(rpc.Call) string { return "worker2" })
	groups := newStaticGroup(t, 3, func(int) *rpc.Functions { return common(t) },
		func(c *rpc.Config) { c.Functions = append(c.Functions, fns) })
	future := block.Go(t.Context(), groups[0], "worker1", struct{}{})
	<-started
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		shutdownAll(t, groups)
	}()
	select {
	case <-ended:
		t.Error("Shutdown did not wait for a running function")
	case <-time.After(100 * time.Millisecond):
	}
	close(finish)
	if _, err := future.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	<-ended
}

// A call that a function of another group makes is a call of its own: a group that is ending refuses it.
func TestCallFromOtherGroup(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	ending := newStaticGroup(t, 1, func(int) *rpc.Functions {
		fns := common(t)
		if err := block.Handle(fns, func(context.Context, struct{}) (struct{}, error) {
			close(started)
			<-finish
			return struct{}{}, nil
		}); err != nil {
			t.Fatal(err)
		}
		return fns
	}, nil)[0]
	other := newStaticGroup(t, 1, func(int) *rpc.Functions {
		fns := rpc.NewFunctions()
		if err := greet.Handle(fns, func(ctx context.Context, name string) (string, error) {
			_, err := greet.Go(ctx, ending, "worker0", name).Wait(ctx)
			return fmt.Sprint(errors.Is(err, rpc.ErrShutdown), " ", err), nil
		}); err != nil {
			t.Fatal(err)
		}
		return fns
	}, nil)[0]
	future := block.Go(t.Context(), ending, "worker0", struct{}{})
	<-started
	ended := make(chan error)
	go func() { ended <- ending.Shutdown(t.Context()) }()
	testenv.Await(t, "the group to be ending", time.Minute, func() bool {
		_, err := greet.Go(t.Context(), ending, "worker0", "x").Wait(t.Context())
		return errors.Is(err, rpc.ErrShutdown)
	})
	if got, err := greet.Call(t.Context(), other, "worker0", "x"); err != nil || !strings.HasPrefix(got, "true ") {
		t.Errorf("the call from the other group's function: %q, %v, want ErrShutdown", got, err)
	}
	close(finish)
	if _, err := future.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestDynamicGroup(t *testing.T) {
	addr := startStore(t)
	join := func(name string) *rpc.Group {
		return initAll(t, []rpc.Config{{Name: name, Store: dialStore(t, addr), Functions: []*rpc.Functions{common(t)}}})[0]
	}
	a, b := join("a"), join("b")
	c := join("c")
	for _, g := range []*rpc.Group{a, b, c} {
		if got := fmt.Sprint(g.View().Workers); got != "[a (id 0) b (id 1) c (id 2)]" {
			t.Errorf("%s sees %s", g.Self(), got)
		}
	}
	if got, err := greet.Call(t.Context(), a, "c", "hi"); err != nil || got != "hi to a, from c" {
		t.Errorf("%q, %v", got, err)
	}
	if err := b.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*rpc.Group{a, c} {
		if got := fmt.Sprint(g.View().Workers); got != "[a (id 0) c (id 2)]" {
			t.Errorf("%s sees %s", g.Self(), got)
		}
	}
	begun := time.Now()
	changed := a.View().Changed
	c.Close()
	select {
	case <-changed:
	case <-time.After(testTimeout):
	}
	if got := fmt.Sprint(a.View().Workers); got != "[a (id 0)]" {
		t.Errorf("after a death a sees %s", got)
	}
	t.Logf("death noticed after %v", time.Since(begun))
	if _, err := greet.Call(t.Context(), a, "c", "hi"); !errors.Is(err, rpc.ErrUnknownWorker) {
		t.Error(err)
	}
	d := join("c")
	if d.Self().ID != 3 {
		t.Errorf("an id was used twice: %v", d.Self())
	}
	shutdownAll(t, []*rpc.Group{a, d})
}

// blockingFunctions returns the function block. A call of it closes started, waits for finish, and then calls greet on
// the worker that next returns.
func blockingFunctions(t testing.TB, next func(rpc.Call) string) (fns *rpc.Functions, started, finish chan struct{}) {
	t.Helper()
	fns, started, finish = rpc.NewFunctions(), make(chan struct{}), make(chan struct{})
	if err := block.Handle(fns, func(ctx context.Context, _ struct{}) (struct{}, error) {
		call, _ := rpc.Incoming(ctx)
		close(started)
		<-finish
		_, err := greet.Call(ctx, call.Group, next(call), "hi")
		return struct{}{}, err
	}); err != nil {
		t.Fatal(err)
	}
	return fns, started, finish
}

// joinOne adds a worker to the dynamic group of a store.
func joinOne(t testing.TB, addr, name string, functions ...*rpc.Functions) *rpc.Group {
	t.Helper()
	return initAll(t, []rpc.Config{{Name: name, Store: dialStore(t, addr), Functions: append(functions, common(t))}})[0]
}

// A worker that leaves stays a member until its own calls are answered: the called function may call it back, and its
// own functions may make calls.
func TestLeaveWaitsForOwnCalls(t *testing.T) {
	addr := startStore(t)
	fns, started, finish := blockingFunctions(t, func(call rpc.Call) string { return call.From.Name })
	a, b := joinOne(t, addr, "a"), joinOne(t, addr, "b", fns)
	future := block.Go(t.Context(), a, "b", struct{}{})
	<-started
	left := make(chan error, 1)
	go func() { left <- a.Shutdown(t.Context()) }()
	changed := b.View().Changed
	select {
	case err := <-left:
		t.Errorf("left during a call: %v", err)
	case <-changed:
		t.Error("removed from the group during a call")
	case <-time.After(100 * time.Millisecond):
	}
	close(finish)
	if _, err := future.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
}

// A call that Go has started counts as work of the group, even before it is sent.
func TestShutdownAfterGo(t *testing.T) {
	for range 50 {
		addr := startStore(t)
		for _, groups := range [][]*rpc.Group{
			newStaticGroup(t, 2, func(int) *rpc.Functions { return common(t) }, nil),
			{joinOne(t, addr, "worker0"), joinOne(t, addr, "worker1")},
		} {
			future := greet.Go(t.Context(), groups[0], "worker1", "last")
			if groups[0].View().Changed == nil {
				shutdownAll(t, groups)
			} else {
				shutdownAll(t, groups[:1]) // otherwise worker1 would leave before the call
				shutdownAll(t, groups[1:])
			}
			if got, err := future.Wait(t.Context()); err != nil || got != "last to worker0, from worker1" {
				t.Fatalf("%q, %v", got, err)
			}
			if _, err := greet.Go(t.Context(), groups[0], "worker1", "").Wait(t.Context()); !errors.Is(err, rpc.ErrShutdown) {
				t.Fatalf("after Shutdown: %v", err)
			}
		}
	}
}

// A function that still runs while its worker leaves can call that worker.
func TestSelfWhileLeaving(t *testing.T) {
	addr := startStore(t)
	fns, started, finish := blockingFunctions(t, func(call rpc.Call) string { return call.Group.Self().Name })
	a, b := joinOne(t, addr, "a", fns), joinOne(t, addr, "b")
	changed := b.View().Changed
	future := block.Go(t.Context(), b, "a", struct{}{})
	<-started
	left := make(chan error, 1)
	go func() { left <- a.Shutdown(t.Context()) }()
	<-changed
	close(finish)
	if _, err := future.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
}

// A member keeps no goroutines for members that have left.
func TestChurnLeavesNothing(t *testing.T) {
	addr := startStore(t)
	stays := joinOne(t, addr, "stays")
	churn := func(n int) {
		for i := range n {
			g := joinOne(t, addr, fmt.Sprintf("guest%d", i))
			if _, err := greet.Call(t.Context(), stays, g.Self().Name, "hi"); err != nil {
				t.Error(err)
			}
			if err := g.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	churn(2)
	baseline := runtime.NumGoroutine()
	churn(20)
	for deadline := time.Now().Add(testTimeout); runtime.NumGoroutine() > baseline+15 && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if now := runtime.NumGoroutine(); now > baseline+15 { // the store has one per client
		t.Errorf("%d goroutines after 22 members came and went, %d after 2", now, baseline)
	}
}

// A member that closes while members watch each other evicts no healthy member. Its own calls end with ErrShutdown.
func TestCloseEvictsNobody(t *testing.T) {
	addr := startStore(t)
	stays := joinOne(t, addr, "stays")
	for i := range 30 {
		g := joinOne(t, addr, "guest")
		changed := stays.View().Changed
		calls := make(chan error, 1)
		go func() {
			for {
				if _, err := greet.Call(t.Context(), g, "stays", "hi"); err != nil {
					calls <- err
					return
				}
			}
		}()
		g.Close()
		if err := <-calls; !errors.Is(err, rpc.ErrShutdown) {
			t.Errorf("round %d: a call after Close: %v", i, err)
		}
		<-changed
		select {
		case <-stays.Done():
			t.Fatalf("round %d: a healthy member was evicted", i)
		default:
		}
	}
}

// An error of a function may be longer than the payload limit.
func TestLimits(t *testing.T) {
	fail := rpc.NewFunc[struct{}, struct{}]("fail")
	long := strings.Repeat("x", 100<<10)
	groups := newStaticGroup(t, 2, func(int) *rpc.Functions {
		fns := common(t)
		err := fail.Handle(fns, func(context.Context, struct{}) (struct{}, error) { return struct{}{}, errors.New(long) })
		if err != nil {
			t.Fatal(err)
		}
		return fns
	}, func(c *rpc.Config) { c.Options = &rpc.GRPCOptions{MaxPayload: 1000 - 500*c.Rank} }) // worker1 has the lower limit
	var remote *rpc.RemoteError
	if _, err := fail.Call(t.Context(), groups[0], "worker1", struct{}{}); !errors.As(err, &remote) {
		t.Errorf("a long error arrived as %v", err)
	}
	for _, tc := range []struct{ from, size, limit int }{
		{0, 1001, 1000}, {0, 1000, 500}, {0, 501, 500}, {1, 501, 500}, {0, 500, 0}, {1, 500, 0}, {0, 1 << 20, 1000},
	} {
		_, err := echo.Call(t.Context(), groups[tc.from], fmt.Sprintf("worker%d", 1-tc.from), make([]byte, tc.size))
		var large *rpc.TooLargeError
		if tc.limit == 0 && err != nil || tc.limit > 0 &&
			(!errors.As(err, &large) || large.Size != int64(tc.size) || large.Limit != int64(tc.limit)) {
			t.Errorf("%d bytes from worker%d: %v", tc.size, tc.from, err)
		}
	}
	shutdownAll(t, groups)
}

// The deadline of the context in Init causes ErrTimeout.
func TestTimeoutOfInit(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // enough to begin to wait for the other
	defer cancel()
	_, err := rpc.Init(ctx, rpc.Config{Name: "alone", Rank: 0, WorldSize: 2, Store: kvstore.NewHashStore()})
	var missing *membership.MissingError
	if !errors.Is(err, rpc.ErrTimeout) || !errors.As(err, &missing) {
		t.Errorf("Init: %v", err)
	}
}

// BenchmarkInit measures how n workers of one process form a group.
func BenchmarkInit(b *testing.B) {
	for _, n := range []int{8, 64, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			addr := startStore(b)
			configs := make([]rpc.Config, n)
			for i := range configs {
				configs[i] = rpc.Config{Name: fmt.Sprintf("worker%d", i), Rank: i, WorldSize: n, Store: dialStore(b, addr)}
			}
			for round := 0; b.Loop(); round++ {
				for i := range configs {
					configs[i].Options = &rpc.GRPCOptions{Group: fmt.Sprintf("round%d", round)}
				}
				groups := initAll(b, configs)
				b.StopTimer()
				shutdownAll(b, groups)
				b.StartTimer()
			}
		})
	}
}
