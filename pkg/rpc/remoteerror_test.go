package rpc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

type typedError struct{}

func (*typedError) Error() string { return "nothing behind it" }

type hostileError struct{ text *string }

func (e *hostileError) Error() string { return *e.text }

// failure returns an error or panics, as how says.
func failure(how string) error {
	switch how {
	case "plain":
		return errTest
	case "wrapped":
		return fmt.Errorf("a: %w", errors.Join(fmt.Errorf("b: %w", &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}), errTest))
	case "stack":
		return fmt.Errorf("outside: %w", WithStack(WithStack(&typedError{})))
	case "panic":
		panic("many\nlines")
	case "index":
		return fmt.Errorf("%d", make([]int, len(how)-5)[len(how)])
	case "nil error":
		return (*hostileError)(nil)
	case "deadline":
		return context.DeadlineExceeded
	case "long":
		return errors.New(strings.Repeat("ä", maxText))
	}
	return nil
}

func TestRemoteErrors(t *testing.T) {
	g := newGroups(t, newMemoryBackend(), table(t), table(t))[0]
	for _, tc := range []struct {
		how, typeName, message, text string
		panics                       bool
		stack                        []string // in this order
	}{
		{
			how: "plain", typeName: "*errors.errorString", message: "the test's own",
			text:  "function fail of worker1 (id 1) returned *errors.errorString: the test's own",
			stack: []string{"worker1 (id 1), function fail:\n\tdeclared at ", "/pkg/rpc/func_test.go:"},
		},
		{
			how: "wrapped", typeName: "*fs.PathError", message: "a: b: open x: file does not exist\nthe test's own",
			text: "function fail of worker1 (id 1) returned *fs.PathError: a: b: open x: file does not exist; the test's own",
		},
		{
			how: "stack", typeName: "*rpc.typedError", message: "outside: nothing behind it",
			stack: []string{"worker1 (id 1), function fail:\n\tgithub.com/elasticrun/elasticrun/pkg/rpc.failure\n", "remoteerror_test.go:", "rpc.table"},
		},
		{
			how: "panic", typeName: "string", message: "many\nlines", panics: true,
			text:  "function fail of worker1 (id 1) panicked with string: many; lines",
			stack: []string{"worker1 (id 1), function fail:\n\tgithub.com/elasticrun/elasticrun/pkg/rpc.failure\n", "rpc.table"},
		},
		{
			how: "index", typeName: "runtime.boundsError", message: "runtime error: index out of range [5] with length 0", panics: true,
			stack: []string{"function fail:\n\tgithub.com/elasticrun/elasticrun/pkg/rpc.failure\n"},
		},
		{how: "nil error", typeName: "runtime.errorString", panics: true, message: "runtime error: invalid memory address or nil pointer dereference"},
		{how: "deadline", typeName: "context.deadlineExceededError", message: "context deadline exceeded"},
	} {
		_, err := fail.Call(t.Context(), g, "worker1", tc.how)
		remote, ok := err.(*RemoteError) //nolint:errorlint // must not be wrapped
		if !ok {
			t.Errorf("%s: %v", tc.how, err)
			continue
		}
		if remote.Worker != (WorkerInfo{Name: "worker1", ID: 1}) || remote.Func != "fail" || remote.Type != tc.typeName ||
			remote.Message != tc.message || remote.Panic != tc.panics {
			t.Errorf("%s: %#v", tc.how, remote)
		}
		if tc.text != "" && err.Error() != tc.text {
			t.Errorf("%s: %s", tc.how, err)
		}
		expectInOrder(t, remote.Stack, tc.stack...)
		if strings.Contains(remote.Stack, "rpc.Func[") || strings.Contains(remote.Stack, "runtime.") || strings.Contains(remote.Stack, "WithStack") {
			t.Errorf("%s: the stack has internal frames:\n%s", tc.how, remote.Stack)
		}
		if got, want := fmt.Sprintf("%+v", err), err.Error()+"\n"+remote.Stack; got != want {
			t.Errorf("%%+v prints\n%s", got)
		}
		if fmt.Sprintf("%v %s", err, err) != err.Error()+" "+err.Error() {
			t.Errorf("%%v prints %v", err)
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrTimeout) {
			t.Errorf("%s: the deadline of the function counts as that of the caller", tc.how)
		}
	}
	_, err := fail.Call(t.Context(), g, "worker1", "long")
	if e := (*RemoteError)(nil); !errors.As(err, &e) || len(e.Message) > maxText || !strings.HasSuffix(e.Message, "ä…") {
		t.Errorf("a long text: %d bytes", len(e.Message))
	}
}

func expectInOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Errorf("%q is missing, or out of order, in\n%s", part, text)
			return
		}
		rest = after
	}
}

// An error of a nested call carries the stacks of all workers, innermost first, and its original type.
func TestNestedRemoteError(t *testing.T) {
	g := newGroups(t, newMemoryBackend(), table(t), table(t), table(t), table(t))[0]
	_, err := relay.Call(t.Context(), g, "worker1", "worker2>worker3>index")
	remote, ok := err.(*RemoteError) //nolint:errorlint // must not be wrapped
	if !ok || remote.Worker.Name != "worker1" || remote.Type != "runtime.boundsError" || remote.Panic {
		t.Fatalf("got %#v", err)
	}
	expectInOrder(t, remote.Stack, "worker3 (id 3), function fail:\n",
		"rpc.failure", "worker2 (id 2), function relay:\n", "worker1 (id 1), function relay:\n")
	expectInOrder(t, err.Error(),
		"function relay of worker1 (id 1) returned", "relayed: function relay of worker2 (id 2)", "function fail of worker3 (id 3) panicked")
	if n := strings.Count(remote.Stack, "function "); n != 3 {
		t.Errorf("%d sections:\n%s", n, remote.Stack)
	}
	// If a nested call does not reach its worker, its error is an error of the calling function.
	_, err = relay.Call(t.Context(), g, "worker1", "unknown>x")
	if e := (*RemoteError)(nil); !errors.As(err, &e) || e.Type != "*rpc.CallError" || errors.Is(err, ErrUnknownWorker) {
		t.Errorf("got %v", err)
	}
}

func TestWithStack(t *testing.T) {
	if WithStack(nil) != nil {
		t.Error("WithStack(nil) is not nil")
	}
	err := WithStack(fmt.Errorf("x: %w", fs.ErrNotExist))
	if !errors.Is(err, fs.ErrNotExist) || err.Error() != "x: file does not exist" || !errors.Is(WithStack(err), err) || !errors.Is(err, WithStack(err)) {
		t.Errorf("got %v", err)
	}
}
