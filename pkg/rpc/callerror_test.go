package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A call without an answer and without an error of the function returns an error of this package that names the worker
// and the function. The group stays usable.
func TestCallErrors(t *testing.T) {
	m := newMemoryBackend()
	m.limit = 100
	groups := newGroups(t, m, table(t), table(t), nil)
	g := groups[0]
	call := func(_ any, err error) error { return err }
	bad := NewFunc[any, any]("echo")
	for _, tc := range []struct {
		err  error
		kind error
		want string
	}{
		{
			call(sum.Call(t.Context(), g, "unknown", nil)), ErrUnknownWorker,
			`call of sum on unknown: no such worker in the group: "unknown"`,
		},
		{
			call(NewFunc[int, int]("absent").Call(t.Context(), g, "worker1", 1)), ErrNoFunction,
			`call of absent on worker1: no such function; the worker has registered echo, fail, hang, relay, sum, whoami`,
		},
		{
			call(sum.Call(t.Context(), g, "worker2", nil)), ErrNoFunction,
			`call of sum on worker2: no such function: the worker has registered none; pass its Functions to Init`,
		},
		{
			call(echo.Call(t.Context(), g, "worker1", make([]byte, 101))), ErrTooLarge,
			`call of echo on worker1: too large: the request has 101 bytes, the limit is 100; ` +
				`send less at a time, or raise MaxPayload on both workers`,
		},
		{
			call(onlyRaw.Call(t.Context(), g, "worker1", []byte{0x61, 'a'})), ErrEncoding,
			`call of sum on worker1: encoding: the request has type []uint8, but the other worker expects []float64: ` +
				`cbor: cannot unmarshal UTF-8 text string into Go value of type []float64`,
		},
		{
			call(NewFunc[[]float64, string]("sum").Call(t.Context(), g, "worker1", nil)), ErrEncoding,
			`call of sum on worker1: encoding: the answer is not of type string; both workers must use the same type: ` +
				`cbor: cannot unmarshal primitives into Go value of type string`,
		},
		{
			call(bad.Call(t.Context(), g, "worker1", make(chan int))), ErrEncoding,
			`call of echo on worker1: encoding: the request, of type interface {}, cannot be sent: cbor: unsupported type: chan int`,
		},
		{
			call(NewFunc[chan int, error]("x").Call(t.Context(), g, "worker1", nil)), ErrEncoding,
			"call of x on worker1: function x: encoding: chan int cannot be sent\n" +
				"encoding: error is an interface, and the receiver cannot know the type of its value; use a concrete type",
		},
		{
			call(Func[int, int]{}.Call(t.Context(), g, "worker1", 1)), nil,
			`call of  on worker1: a Func without a name: create it with NewFunc`,
		},
	} {
		if e := (*CallError)(nil); !errors.As(tc.err, &e) || tc.kind != nil && !errors.Is(tc.err, tc.kind) ||
			tc.err.Error() != tc.want {
			t.Errorf("got %v\nwant %s", tc.err, tc.want)
		}
	}
	if got, err := sum.Call(t.Context(), g, "worker1", []float64{1}); got != 1 || err != nil {
		t.Errorf("afterwards: %v, %v", got, err)
	}
}

// The caller gets an error for an answer that is too large or cannot be encoded.
func TestBadAnswers(t *testing.T) {
	m := newMemoryBackend()
	m.limit = 100
	large, odd := NewFunc[int, []byte]("large"), NewFunc[int, any]("odd")
	fns := NewFunctions()
	handle(t, fns, large, func(_ context.Context, n int) ([]byte, error) { return make([]byte, n), nil })
	handle(t, fns, odd, func(context.Context, int) (any, error) { return struct{ C chan int }{make(chan int)}, nil })
	g := newGroups(t, m, fns)[0]
	_, err := large.Call(t.Context(), g, "worker0", 101)
	if e := (*TooLargeError)(nil); !errors.As(err, &e) || *e != (TooLargeError{What: "answer", Size: 101, Limit: 100}) {
		t.Errorf("too large: %v", err)
	}
	_, err = odd.Call(t.Context(), g, "worker0", 1)
	if e := (*EncodingError)(nil); !errors.As(err, &e) ||
		!strings.HasPrefix(err.Error(),
			"call of odd on worker0: encoding: the answer, of type interface {}, cannot be sent: ") {
		t.Errorf("cannot be sent: %v", err)
	}
}

func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroups(t, newMemoryBackend(), table(t), table(t))[0]
		defer g.Close()
		begun := time.Now()
		_, err := hang.Call(t.Context(), g, "worker1", struct{}{})
		if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != DefaultTimeout ||
			!strings.HasPrefix(err.Error(), "call of hang on worker1: timed out after 1m, "+
				"the limit of calls without a deadline (option Timeout)") {
			t.Errorf("by default: %v, after %v", err, time.Since(begun))
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = hang.Call(short, g, "worker1", struct{}{})
		if !errors.Is(err, ErrTimeout) || !strings.HasPrefix(err.Error(), "call of hang on worker1: timed out after 1s") {
			t.Errorf("a deadline: %v", err)
		}
		_, err = hang.Call(short, g, "worker1", struct{}{})
		if !errors.Is(err, ErrTimeout) || !strings.HasPrefix(err.Error(), "call of hang on worker1: timed out after 0s") {
			t.Errorf("a deadline in the past: %v", err)
		}
		causal, cancelCausal := context.WithTimeoutCause(t.Context(), time.Second, errTest)
		defer cancelCausal()
		_, err = hang.Call(causal, g, "worker1", struct{}{})
		if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errTest) ||
			!strings.HasPrefix(err.Error(), "call of hang on worker1: timed out after 1s: the test's own") {
			t.Errorf("a deadline with a cause: %v", err)
		}
		gaveUp, cancelCause := context.WithCancelCause(t.Context())
		go cancelCause(errTest)
		if _, err = hang.Call(gaveUp, g, "worker1", struct{}{}); !errors.Is(err, errTest) || errors.Is(err, ErrTimeout) ||
			err.Error() != "call of hang on worker1: the test's own" {
			t.Errorf("canceled: %v", err)
		}
		if got, err := sum.Call(t.Context(), g, "worker1", []float64{1}); got != 1 || err != nil {
			t.Errorf("afterwards: %v, %v", got, err)
		}
	})
}

// stubAgent is an agent whose Invoke is a function.
type stubAgent struct {
	Agent
	invoke func(ctx context.Context) ([]byte, error)
}

func (s stubAgent) Invoke(ctx context.Context, _, _ string, _ []byte) ([]byte, error) {
	return s.invoke(ctx)
}
func (s stubAgent) View() View { return View{} }

// An error of an agent becomes a RemoteError or a CallError. The end of the context has priority.
func TestAgentErrors(t *testing.T) {
	remote := func() *RemoteError { return &RemoteError{Type: "T", Message: "m"} }
	further := &CallError{Worker: "worker2", Func: "g", Err: ErrConnection}
	late := func(ctx context.Context) ([]byte, error) {
		<-ctx.Done()
		return nil, remote()
	}
	for _, tc := range []struct {
		name    string
		timeout time.Duration // default of the group
		invoke  func(ctx context.Context) ([]byte, error)
		want    string
		kind    error
		remote  bool
	}{
		{
			name: "an error of the function", invoke: func(context.Context) ([]byte, error) { return nil, remote() },
			want: "function hang of gone (id 0) returned T: m", remote: true,
		},
		{
			name: "an error", invoke: func(context.Context) ([]byte, error) { return nil, fmt.Errorf("a: %w", ErrReplaced) },
			want: "call of hang on gone: a: another worker now has the address", kind: ErrReplaced,
		},
		{
			name: "a CallError", invoke: func(context.Context) ([]byte, error) { return nil, further },
			want: "call of g on worker2: connection failed", kind: ErrConnection,
		},
		{
			name: "an error of the function, too late", timeout: time.Second, invoke: late, kind: ErrTimeout, remote: true,
			want: "call of hang on gone: timed out after 1s, the limit of calls without a deadline (option Timeout): " +
				"function hang of gone (id 0) returned T: m",
		},
		{
			name: "a connection that fails at the deadline", timeout: time.Second, kind: ErrConnection,
			invoke: func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ErrConnection },
			want: "call of hang on gone: timed out after 1s, " +
				"the limit of calls without a deadline (option Timeout): connection failed",
		},
		{
			name: "no limit", timeout: -1, kind: errTest, want: "call of hang on gone: the test's own",
			invoke: func(ctx context.Context) ([]byte, error) {
				if _, ok := ctx.Deadline(); ok {
					return nil, ErrTimeout
				}
				return nil, errTest
			},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t.Context(), stubAgent{invoke: tc.invoke}, tc.timeout, nil)
			_, err := hang.Call(t.Context(), g, "gone", struct{}{})
			isRemote := errors.As(err, new(*RemoteError))
			if errText(err) != tc.want || tc.kind != nil && !errors.Is(err, tc.kind) || isRemote != tc.remote {
				t.Errorf("%s: %v", tc.name, err)
			}
		})
	}
}

// earlyDeadline is a context whose deadline is before its end.
type earlyDeadline struct {
	context.Context //nolint:containedctx // wraps a context
	deadline        time.Time
}

func (h earlyDeadline) Deadline() (time.Time, bool) { return h.deadline, true }

// A function that ends at the deadline can answer before the caller's context has ended. The call still times out.
func TestDeadlineBeforeContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		g := newGroup(t.Context(), stubAgent{
			invoke: func(context.Context) ([]byte, error) { return nil, &RemoteError{} },
		}, 0, nil)
		_, err := hang.Call(earlyDeadline{ctx, time.Now()}, g, "worker1", struct{}{})
		if !errors.Is(err, ErrTimeout) {
			t.Errorf("got %v", err)
		}
	})
}
