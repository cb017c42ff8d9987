package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	sum     = NewFunc[[]float64, float64]("sum")
	echo    = NewFunc[[]byte, []byte]("echo")
	fail    = NewFunc[string, struct{}]("fail")
	relay   = NewFunc[string, struct{}]("relay")
	hang    = NewFunc[struct{}, struct{}]("hang")
	whoami  = NewFunc[struct{}, [2]string]("whoami")
	onlyRaw = NewFunc[[]byte, []byte]("sum") // same name as sum, other types
)

// table returns all functions of these tests.
func table(t testing.TB) *Functions {
	t.Helper()
	fns := NewFunctions()
	handle(t, fns, sum, func(_ context.Context, xs []float64) (total float64, err error) {
		for _, x := range xs {
			total += x
		}
		return total, nil
	})
	handle(t, fns, echo, func(_ context.Context, b []byte) ([]byte, error) { return b, nil })
	handle(t, fns, fail, func(_ context.Context, how string) (struct{}, error) { return struct{}{}, failure(how) })
	handle(t, fns, relay, func(ctx context.Context, to string) (struct{}, error) {
		call, _ := Incoming(ctx)
		next, rest, more := strings.Cut(to, ">")
		var err error
		if more && strings.Contains(rest, ">") {
			_, err = relay.Call(ctx, call.Group, next, rest)
		} else {
			_, err = fail.Call(ctx, call.Group, next, rest)
		}
		return struct{}{}, fmt.Errorf("relayed: %w", err)
	})
	handle(t, fns, hang, func(ctx context.Context, _ struct{}) (struct{}, error) {
		<-ctx.Done()
		return struct{}{}, ctx.Err()
	})
	handle(t, fns, whoami, func(ctx context.Context, _ struct{}) ([2]string, error) {
		call, ok := Incoming(ctx)
		if !ok {
			return [2]string{}, errTest
		}
		return [2]string{call.Group.Self().String(), call.From.String()}, nil
	})
	return fns
}

func TestCalls(t *testing.T) {
	groups := newGroups(t, newMemoryBackend(), table(t), table(t), nil)
	for _, from := range groups {
		for _, to := range []string{"worker0", "worker1"} { // including itself
			if got, err := sum.Call(t.Context(), from, to, []float64{1, 2, 3.5}); got != 6.5 || err != nil {
				t.Errorf("sum on %s = %v, %v", to, got, err)
			}
			got, err := whoami.Go(t.Context(), from, to, struct{}{}).Wait(t.Context())
			worker, _ := from.Worker(to)
			if want := [2]string{worker.String(), from.Self().String()}; got != want || err != nil {
				t.Errorf("whoami = %q, %v, want %q", got, err, want)
			}
		}
	}
	if _, ok := Incoming(t.Context()); ok {
		t.Error("Incoming found a call in a context without one")
	}
	if sum.Name() != "sum" {
		t.Errorf("Name = %q", sum.Name())
	}
}

func TestHandle(t *testing.T) {
	var fns Functions // the zero value is ready to use
	do := func(context.Context, int) (int, error) { return 0, nil }
	handle(t, &fns, NewFunc[int, int]("b"), do)
	handle(t, &fns, NewFunc[int, int]("a"), do)
	for _, tc := range []struct {
		err  error
		want string
	}{
		{NewFunc[int, int]("a").Handle(&fns, do), "register function a: the name is taken; each function needs its own name"},
		{NewFunc[int, int]("").Handle(&fns, do), `register: function name "": must be 1 to 255 bytes of printable text`},
		{NewFunc[int, int]("a\nb").Handle(&fns, do), `register: function name "a\nb": must be 1 to 255 bytes of printable text`},
		{NewFunc[int, int](strings.Repeat("a", 256)).Handle(&fns, do), "must be 1 to 255 bytes"},
		{NewFunc[int, chan int]("c").Handle(&fns, nil), "register: function c: encoding: chan int cannot be sent"},
		{NewFunc[int, int]("c").Handle(&fns, nil), "register function c: the handler is nil"},
		{Func[int, int]{}.Handle(&fns, do), "register: a Func without a name: create it with NewFunc"},
	} {
		if tc.err == nil || !strings.HasSuffix(tc.err.Error(), tc.want) && !strings.Contains(tc.err.Error(), "must be 1 to 255") {
			t.Errorf("got %v\nwant %s", tc.err, tc.want)
		}
	}
	if diff := cmp.Diff([]string{"a", "b"}, fns.List()); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	merged, err := mergeFunctions([]*Functions{nil, &fns, {}})
	if err != nil || len(merged) != 2 {
		t.Errorf("merged: %v, %v", merged, err)
	}
	err = NewFunc[int, int]("late").Handle(&fns, do)
	if err == nil || !strings.Contains(err.Error(), "register all functions before Init") {
		t.Errorf("a late registration: %v", err)
	}
	_, err = mergeFunctions([]*Functions{&fns, &fns})
	if e := (*DuplicateError)(nil); !errors.As(err, &e) || e.Func != "a" {
		t.Errorf("two tables with one name: %v", err)
	}
}

func TestManyCallers(t *testing.T) {
	groups := newGroups(t, newMemoryBackend(), table(t), table(t), table(t))
	var wg sync.WaitGroup
	for i, g := range groups {
		for j := range 20 {
			wg.Go(func() {
				for k := range 50 {
					to := fmt.Sprint("worker", (i+k)%3)
					got, err := sum.Call(t.Context(), g, to, []float64{float64(j), float64(k)})
					if got != float64(j+k) || err != nil {
						t.Errorf("sum = %v, %v", got, err)
					}
				}
			})
		}
	}
	wg.Wait()
}

func BenchmarkCall(b *testing.B) {
	g := newGroups(b, newMemoryBackend(), table(b))[0]
	payload := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := echo.Call(b.Context(), g, "worker0", payload); err != nil {
			b.Fatal(err)
		}
	}
}
