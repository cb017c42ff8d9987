package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rpc"
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
			groups := meet(t, n, func(int) *rpc.Functions { return common(t) }, nil)
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
	groups := meet(t, 3, func(int) *rpc.Functions {
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
	case <-time.After(patience):
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

func BenchmarkInit(b *testing.B) {
	for _, n := range []int{8, 64, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				addr := startStore(b)
				configs := make([]rpc.Config, n)
				for i := range configs {
					configs[i] = rpc.Config{Name: fmt.Sprintf("worker%d", i), Rank: i, WorldSize: n, Store: dialStore(b, addr)}
				}
				b.StartTimer()
				groups := initAll(b, configs)
				b.StopTimer()
				shutdownAll(b, groups)
				b.StartTimer()
			}
		})
	}
}
