package rpc

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
)

// Func is a function that workers can call on each other: a name and the types of its request and its answer. It holds
// no code; [Func.Handle] registers the code in the workers that serve it. A Func is immutable, so it can be a package
// variable that any number of goroutines and groups use. Use [NewFunc].
type Func[Req, Resp any] struct {
	name string
	req  codec[Req]
	resp codec[Resp]
	err  error // set if the Func is unusable
}

// NewFunc returns a Func. The name must be 1 to 255 bytes of printable text, and both types must be encodable.
// Otherwise each Handle and Call returns the error.
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

// Name returns the name of the function.
func (f Func[Req, Resp]) Name() string { return f.name }

func (f Func[Req, Resp]) check() error {
	if f.err == nil && f.req.encode == nil {
		return errors.New("a Func without a name: create it with NewFunc")
	}
	return f.err
}

// Handle registers do as the code of f in fns. do runs when a worker of the group, including this one, calls f. Calls
// run do concurrently. The context of do ends with the caller's deadline and with the group. [Incoming] returns the
// caller.
//
// The caller gets an error that do returns, and a panic of any value, as a [RemoteError]. Neither ends the process. If
// do ends its goroutine, as runtime.Goexit and the Fatal method of a test do, the caller gets no answer.
//
// A []byte that do returns is sent without a copy; nobody may change it afterwards.
//
// If the name is taken, Handle returns a [DuplicateError].
func (f Func[Req, Resp]) Handle(fns *Functions, do func(ctx context.Context, req Req) (Resp, error)) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if do == nil {
		return fmt.Errorf("register function %s: the handler is nil", f.name)
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
	return fns.add(f.name, run)
}

// Call calls f on the worker named to, which may be this worker, and returns its answer. If ctx has no deadline, the
// limit is [Common.Timeout].
//
// The error is a [RemoteError] if the function failed, and otherwise a [CallError]. A call is never sent twice.
//
// A []byte request must not be changed before Call returns. After [ErrTimeout] or a cancellation it must never be
// changed, because it can still be under way.
func (f Func[Req, Resp]) Call(ctx context.Context, g *Group, to string, req Req) (Resp, error) {
	payload, err := f.encode(to, req)
	if err != nil {
		var none Resp
		return none, err
	}
	return f.invoke(ctx, g, to, payload)
}

// Go starts a Call and returns its [Future]. It encodes the request before it returns; only a []byte request must stay
// unchanged until the future is done. The group owns the goroutine of the call: Shutdown and Close wait for it.
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
		err = &EncodingError{What: directionRequest, Sent: typeName[Req](), Err: err}
		return nil, &CallError{Worker: to, Func: f.name, Err: err}
	}
	return payload, nil
}

func (f Func[Req, Resp]) invoke(ctx context.Context, g *Group, to string, payload []byte) (resp Resp, err error) {
	answer, err := g.call(ctx, to, f.name, payload)
	if err != nil {
		if e := (*EncodingError)(nil); errors.As(err, &e) && e.What == directionRequest && e.Sent == "" && e.Wanted != "" {
			e.Sent = typeName[Req]() // the other worker knows only its own type
		}
		return resp, err
	}
	if resp, err = f.resp.decode(answer); err != nil {
		err = &EncodingError{What: directionAnswer, Wanted: typeName[Resp](), Err: err}
		err = &CallError{Worker: to, Func: f.name, Err: err}
	}
	return resp, err
}

func typeName[T any]() string { return reflect.TypeFor[T]().String() }

// placeOf returns the position FILE:LINE of the declaration of a function.
func placeOf(function any) string {
	entry := reflect.ValueOf(function).Pointer()
	file, line := runtime.FuncForPC(entry).FileLine(entry)
	return fmt.Sprintf("%s:%d", file, line)
}
