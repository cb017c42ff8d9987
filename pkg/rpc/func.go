package rpc

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
)

// Func is a function that workers can call on each other: a name and the types of what goes in and what comes out, known to
// both sides. It holds no code; that is what [Func.Handle] registers, where it is to run. A Func is a value that never
// changes, so it may be a package's variable and be used by any number of goroutines and groups.
type Func[Req, Resp any] struct {
	name string
	req  codec[Req]
	resp codec[Resp]
	err  error // why it cannot be used
}

// NewFunc names a function. A name of 1 to 255 bytes of printable text is needed, and types that can be sent; what is
// wrong with them is the error of each Handle and Call.
func NewFunc[Req, Resp any](name string) Func[Req, Resp] {
	f := Func[Req, Resp]{name: name, err: checkFuncName(name)}
	var reqErr, respErr error
	f.req, reqErr = newCodec[Req]()
	f.resp, respErr = newCodec[Resp]()
	if err := errors.Join(reqErr, respErr); f.err == nil && err != nil {
		f.err = fmt.Errorf("function %s: %w", name, err)
	}
	return f
}

// Name returns the function's name.
func (f Func[Req, Resp]) Name() string { return f.name }

func (f Func[Req, Resp]) check() error {
	if f.err == nil && f.req.encode == nil {
		return errors.New("a Func without a name: make it with NewFunc")
	}
	return f.err
}

// Handle registers what runs when another worker calls f, or this one itself. do is called by any number of goroutines at
// once. Its context ends with the caller's deadline and with the group; [Incoming] tells who has called.
//
// An error that it returns goes to the caller, and so does a panic, whatever its value: neither ends the
// process. See [RemoteError]. A do that ends its goroutine, by runtime.Goexit or by the Fatal of a test, never answers.
//
// A []byte that it returns is sent as it is, and nobody may change it any more.
//
// A name that is taken is a [DuplicateError].
func (f Func[Req, Resp]) Handle(fns *Functions, do func(ctx context.Context, req Req) (Resp, error)) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if do == nil {
		return fmt.Errorf("register function %s: it is nil", f.name)
	}
	declared := placeOf(do)
	run := func(ctx context.Context, self WorkerInfo, payload []byte) (answer []byte, err error) {
		defer func() {
			if value := recover(); value != nil {
				answer, err = nil, panickedError(self, f.name, value)
			}
		}()
		req, err := f.req.decode(payload)
		if err != nil {
			return nil, &EncodingError{What: directionRequest, Wanted: typeName[Req](), Err: err}
		}
		resp, err := do(ctx, req)
		if err != nil {
			return nil, returnedError(self, f.name, err, declared)
		}
		if answer, err = f.resp.encode(resp); err != nil {
			return nil, &EncodingError{What: directionAnswer, Sent: typeName[Resp](), Err: err}
		}
		return answer, nil
	}
	return fns.add(f.name, function{run: run})
}

// Call calls f on the worker of this name, which may be this one itself, and returns its answer. A context without a deadline
// gets that of the group's options, [Common.Timeout].
//
// The error is a [RemoteError] if the function has failed, and else a [CallError]. A call is never sent twice.
//
// A []byte must not be changed before Call returns, and after [ErrTimeout] or a cancellation not at all.
func (f Func[Req, Resp]) Call(ctx context.Context, g *Group, to string, req Req) (Resp, error) {
	payload, err := f.encode(to, req)
	if err != nil {
		var none Resp
		return none, err
	}
	return f.invoke(ctx, g, to, payload)
}

// Go is Call without waiting. The request is encoded before it returns; only a []byte must not be changed before the
// future is done. The goroutine that waits for the answer is the group's: it ends with the call, and Shutdown and Close wait for it.
func (f Func[Req, Resp]) Go(ctx context.Context, g *Group, to string, req Req) *Future[Resp] {
	future := &Future[Resp]{worker: to, function: f.name, done: make(chan struct{})}
	payload, err := f.encode(to, req)
	if err == nil && !g.start(ctx, func() {
		defer close(future.done)
		future.resp, future.err = f.invoke(ctx, g, to, payload)
	}) {
		err = &CallError{Worker: to, Func: f.name, Err: ErrShutdown}
	}
	if err != nil {
		future.err = err
		close(future.done)
	}
	return future
}

func (f Func[Req, Resp]) encode(to string, req Req) ([]byte, error) {
	if err := f.check(); err != nil {
		return nil, &CallError{Worker: to, Func: f.name, Err: err}
	}
	payload, err := f.req.encode(req)
	if err != nil {
		return nil, &CallError{Worker: to, Func: f.name, Err: &EncodingError{What: directionRequest, Sent: typeName[Req](), Err: err}}
	}
	return payload, nil
}

func (f Func[Req, Resp]) invoke(ctx context.Context, g *Group, to string, payload []byte) (resp Resp, err error) {
	answer, err := g.call(ctx, to, f.name, payload)
	if err != nil {
		if e := (*EncodingError)(nil); errors.As(err, &e) && e.What == directionRequest && e.Sent == "" && e.Wanted != "" {
			e.Sent = typeName[Req]() // the other worker knows its own type alone
		}
		return resp, err
	}
	if resp, err = f.resp.decode(answer); err != nil {
		err = &CallError{Worker: to, Func: f.name, Err: &EncodingError{What: directionAnswer, Wanted: typeName[Resp](), Err: err}}
	}
	return resp, err
}

func typeName[T any]() string { return reflect.TypeFor[T]().String() }

// placeOf returns where a function is declared, FILE:LINE.
func placeOf(function any) string {
	entry := reflect.ValueOf(function).Pointer()
	file, line := runtime.FuncForPC(entry).FileLine(entry)
	return fmt.Sprintf("%s:%d", file, line)
}
