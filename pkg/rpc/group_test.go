package rpc

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

func TestGroupViews(t *testing.T) {
	g := newGroups(t, newMemoryBackend(), nil, nil)[1]
	if diff := cmp.Diff([]WorkerInfo{{Name: "worker0"}, {Name: "worker1", ID: 1}}, g.View().Workers); diff != "" {
		t.Errorf("workers (-want +got):\n%s", diff)
	}
	if w, ok := g.Worker("worker0"); !ok || w != (WorkerInfo{Name: "worker0"}) || g.Self().ID != 1 {
		t.Errorf("worker0 = %v, %v; self %v", w, ok, g.Self())
	}
	if w, ok := g.Worker("worker2"); ok {
		t.Errorf("worker2 = %v", w)
	}
	if diff := cmp.Diff([]device.Device{device.CUDA(0)}, g.Devices()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(device.Map{device.CUDA(0): device.CUDA(1)}, g.DeviceMap("worker1")); diff != "" {
		t.Errorf("map (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(device.Map{device.CUDA(0): device.CUDA(3)}, g.ReverseDeviceMap("worker2")); diff != "" {
		t.Errorf("reverse map (-want +got):\n%s", diff)
	}
	if g.DeviceMap("worker0") != nil || g.ReverseDeviceMap("worker0") != nil {
		t.Error("a map came from nowhere")
	}
}

// releases counts how often the group releases its store.
func releases(g *Group) *int {
	n := new(int)
	releaseStore := g.releaseStore
	g.releaseStore = func() error {
		*n++
		return errors.Join(errTest, releaseStore())
	}
	return n
}

// The group ends once, no matter how often Shutdown and Close are called. It releases the store last, and once.
func TestGroupEndsOnce(t *testing.T) {
	for name, end := range map[string]func(*Group) error{
		"Shutdown": func(g *Group) error { return g.Shutdown(t.Context()) },
		"Close":    (*Group).Close,
	} {
		g := newGroups(t, newMemoryBackend(), nil)[0]
		released := releases(g)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := end(g); !errors.Is(err, errTest) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		wg.Wait()
		if err := g.Close(); !errors.Is(err, errTest) || *released != 1 {
			t.Errorf("%s: Close = %v, released %d times", name, err, *released)
		}
		select {
		case <-g.Done():
		default:
			t.Errorf("%s: Done is open", name)
		}
		g.closeErr = nil // for the cleanup of the test
	}
}

func TestGracefulShutdownWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, goOn := make(chan struct{}), make(chan struct{})
		slow := NewFunc[struct{}, string]("slow")
		fns := table(t)
		handle(t, fns, slow, func(context.Context, struct{}) (string, error) {
			close(began)
			<-goOn
			return "done", nil
		})
		groups := newGroups(t, newMemoryBackend(), table(t), fns)
		future := slow.Go(t.Context(), groups[0], "worker1", struct{}{})
		<-began
		ended := make(chan error, 2)
		for _, g := range groups {
			go func() { ended <- g.Shutdown(t.Context()) }()
		}
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		// A second Shutdown waits for the first until its own context ends.
		if err := groups[0].Shutdown(short); !errors.Is(err, ErrTimeout) ||
			err.Error() != "shut down the group: timed out: context deadline exceeded" {
			t.Errorf("a second Shutdown with a short deadline: %v", err)
		}
		if len(ended) > 0 {
			t.Error("Shutdown did not wait for the call")
		}
		close(goOn)
		for range groups {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		select {
		case <-future.Done():
		default:
			t.Error("Shutdown did not wait for the future")
		}
		if got, err := future.Wait(t.Context()); got != "done" || err != nil {
			t.Errorf("the call: %q, %v", got, err)
		}
		if _, err := sum.Call(t.Context(), groups[0], "worker1", nil); !errors.Is(err, ErrShutdown) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// A Shutdown that cannot be graceful returns the reason and leaves nothing behind.
func TestShutdownThatMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, cancelNow := range map[string]func(g *Group, cancel func()){
			"its context ends": func(_ *Group, cancel func()) { cancel() },
			"Close":            func(g *Group, _ func()) { _ = g.Close() },
		} {
			groups := newGroups(t, newMemoryBackend(), table(t), table(t))
			future := hang.Go(t.Context(), groups[0], "worker1", struct{}{})
			synctest.Wait()
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan error)
			go func() { ended <- groups[0].Shutdown(ctx) }()
			synctest.Wait()
			go cancelNow(groups[0], func() { cancel(errTest) })
			err := <-ended
			if name == "Close" != errors.Is(err, ErrShutdown) || name == "Close" == errors.Is(err, errTest) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := future.Wait(t.Context()); !errors.Is(err, ErrShutdown) {
				t.Errorf("%s: the call under way: %v", name, err)
			}
			if err := groups[0].Close(); err != nil {
				t.Errorf("%s: Close = %v", name, err)
			}
			cancel(nil)
		}
	})
}

// The group has not ended before the goroutines of futures have ended.
func TestCloseWaitsForGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroups(t, newMemoryBackend(), nil)[0]
		goOn, ended := make(chan struct{}), make(chan error, 1)
		if !g.start(t.Context(), func() { <-goOn }) {
			t.Fatal("refused")
		}
		go func() { ended <- g.Close() }()
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("Close did not wait")
		}
		if g.start(t.Context(), func() {}) {
			t.Error("a goroutine started after Close")
		}
		close(goOn)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// While a group ends, only its own functions may begin calls. One of another group does not count, unless a function of
// this group has called it in this worker.
func TestStartWhileEnding(t *testing.T) {
	groups := newGroups(t, newMemoryBackend(), nil, nil)
	g, other := groups[0], groups[1]
	own, foreign := &Call{Group: g}, &Call{Group: other}
	g.mu.Lock()
	g.ending = true
	g.mu.Unlock()
	for _, tt := range []struct {
		name   string
		call   *Call
		starts bool
	}{
		{name: "no function"},
		{name: "own function", call: own, starts: true},
		{name: "function of another group", call: foreign},
		{name: "function of another group, for an own one", call: &Call{Group: other, outer: own}, starts: true},
		{name: "own function, for one of another group", call: &Call{Group: g, outer: foreign}, starts: true},
	} {
		ctx := t.Context()
		if tt.call != nil {
			ctx = context.WithValue(ctx, incomingKey{}, tt.call)
		}
		if starts := g.start(ctx, func() {}); starts != tt.starts {
			t.Errorf("%s: starts %v, want %v", tt.name, starts, tt.starts)
		}
	}
	g.mu.Lock()
	g.ending = false // for the cleanup of the test
	g.mu.Unlock()
}
