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

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rpc"
	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
)

var (
	echo  = rpc.NewFunc[[]byte, []byte]("echo")
	greet = rpc.NewFunc[string, string]("greet")
	relay = rpc.NewFunc[[]string, string]("relay") // calls itself on the first name with the rest
	block = rpc.NewFunc[struct{}, struct{}]("block")
)

// common are functions that every worker of these tests has.
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

// A member that shuts down serves the others until they are done.
func TestShutdownWaitsForWork(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	groups := newStaticGroup(t, 3, func(int) *rpc.Functions {
		fns := common(t)
		if err := block.Handle(fns, func(ctx context.Context, _ struct{}) (struct{}, error) {
			close(started)
			<-finish
			call, _ := rpc.Incoming(ctx)
			_, err := greet.Call(ctx, call.Group, "worker2", "late") // which has shut down, but not ended
			return struct{}{}, err
		}); err != nil {
			t.Fatal(err)
		}
		return fns
	}, nil)
	future := block.Go(t.Context(), groups[0], "worker1", struct{}{})
	<-started
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		shutdownAll(t, groups)
	}()
	select {
	case <-ended:
		t.Error("Shutdown did not wait for a function that runs")
	case <-time.After(100 * time.Millisecond):
	}
	close(finish)
	if _, err := future.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	<-ended
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
		t.Errorf("an id was given twice: %v", d.Self())
	}
	shutdownAll(t, []*rpc.Group{a, d})
}

// held is the function block: it tells once that it has started, waits for finish, and then greets whom next names.
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

// joinOne makes a worker a member of the dynamic group of a store.
func joinOne(t testing.TB, addr, name string, functions ...*rpc.Functions) *rpc.Group {
	t.Helper()
	return initAll(t, []rpc.Config{{Name: name, Store: dialStore(t, addr), Functions: append(functions, common(t))}})[0]
}

// Whoever leaves is a member until its own calls are answered: what it has called may call it, and a function of its own may call on after that.
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
		t.Errorf("left with a call under way: %v", err)
	case <-changed:
		t.Error("it is no member any more, with a call under way")
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

// A call that Go has begun is the group's work, even before it has gone out.
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
				shutdownAll(t, groups[:1]) // the other one would leave before it is called
				shutdownAll(t, groups[1:])
			}
			if got, err := future.Wait(t.Context()); err != nil || got != "last to worker0, from worker1" {
				t.Fatalf("%q, %v", got, err)
			}
			if _, err := greet.Go(t.Context(), groups[0], "worker1", "").Wait(t.Context()); !errors.Is(err, rpc.ErrShutdown) {
				t.Fatalf("after the end: %v", err)
			}
		}
	}
}

// A function that runs on while its worker leaves may call the worker itself, and knows its devices.
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

// A member that stays keeps nothing of those that come and go.
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
	groupSet := runtime.NumGoroutine()
	churn(20)
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > groupSet+15 && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if now := runtime.NumGoroutine(); now > groupSet+15 { // the store serves each client with one
		t.Errorf("%d goroutines after 22 members came and went, %d after 2", now, groupSet)
	}
}

// Members that close while all look after each other evict nobody who lives, and see the end that they wanted.
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
			t.Errorf("round %d: a call at the end: %v", i, err)
		}
		<-changed
		select {
		case <-stays.Done():
			t.Fatalf("round %d: a healthy member was evicted", i)
		default:
		}
	}
}

// An error of a function may be longer than a payload.
func TestLimits(t *testing.T) {
	fail := rpc.NewFunc[struct{}, struct{}]("fail")
	long := strings.Repeat("x", 100<<10)
	groups := newStaticGroup(t, 2, func(int) *rpc.Functions {
		fns := common(t)
		if err := fail.Handle(fns, func(context.Context, struct{}) (struct{}, error) { return struct{}{}, errors.New(long) }); err != nil {
			t.Fatal(err)
		}
		return fns
	}, func(c *rpc.Config) { c.Options = &rpc.GRPCOptions{MaxPayload: 1000 - 500*c.Rank} }) // worker1 takes less
	var remote *rpc.RemoteError
	if _, err := fail.Call(t.Context(), groups[0], "worker1", struct{}{}); !errors.As(err, &remote) {
		t.Errorf("a long error came as %v", err)
	}
	for _, tc := range []struct{ from, size, limit int }{
		{0, 1001, 1000}, {0, 1000, 500}, {0, 501, 500}, {1, 501, 500}, {0, 500, 0}, {1, 500, 0}, {0, 1 << 20, 1000},
	} {
		_, err := echo.Call(t.Context(), groups[tc.from], fmt.Sprintf("worker%d", 1-tc.from), make([]byte, tc.size))
		var large *rpc.TooLargeError
		if tc.limit == 0 && err != nil || tc.limit > 0 && (!errors.As(err, &large) || large.Size != int64(tc.size) || large.Limit != int64(tc.limit)) {
			t.Errorf("%d bytes from worker%d: %v", tc.size, tc.from, err)
		}
	}
	shutdownAll(t, groups)
}

// The end of a context in Init and Shutdown is the package's timeout as well.
func TestTimeoutOfInit(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := rpc.Init(ctx, rpc.Config{Name: "alone", Rank: 0, WorldSize: 2, Store: kvstore.NewHashStore()})
	var missing *membership.MissingError
	if !errors.Is(err, rpc.ErrTimeout) || !errors.As(err, &missing) {
		t.Errorf("Init: %v", err)
	}
}

// BenchmarkInit has n workers of this process form a group.
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
