package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
)

// Watch tells a peer hello and lasts until one of the two ends it, or is lost. begun, if not nil, is called when the peer has
// agreed. It returns nil when the peer has said goodbye. When ctx ends, this side says goodbye, so that the peer sees an orderly
// end, and Watch returns the context's cause, or [ErrTimeout] for a deadline. [ErrRefused] is a peer that does not want the watch. A peer that
// is lost is [ErrConnection], and so is one that could not be reached.
func (p *Pool) Watch(ctx context.Context, addr string, hello []byte, begun func()) error {
	c, err := p.acquire(addr)
	if err != nil {
		return err
	}
	defer p.release(c)
	if err := c.fits(parts{hello}); err != nil {
		return err
	}
	err = c.watch(ctx, hello, begun)
	if err == nil {
		return nil
	}
	return c.fail(err)
}

func (c *conn) watch(ctx context.Context, hello []byte, begun func()) error {
	// The stream outlives ctx by the goodbye. Before the peer has agreed there is none to be said.
	streaming, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	unagreed := context.AfterFunc(ctx, cancel)
	defer unagreed()
	stream, err := c.grpc.NewStream(streaming, &watchStream, watchPath)
	if err == nil {
		err = stream.SendMsg(parts{hello})
	}
	if errors.Is(err, io.EOF) { // ended by the peer: what it says is to be received
		err = nil
	}
	var word []byte
	if err == nil {
		err = stream.RecvMsg(&word)
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return c.reason(ctx, err)
	case string(word) != watchBegun:
		return strange(word)
	}
	if !unagreed() {
		return endOf(ctx)
	}
	if begun != nil {
		begun()
	}
	return c.attend(ctx, stream, cancel)
}

// attend waits for the end of a watch that the peer has agreed to.
func (c *conn) attend(ctx context.Context, stream grpc.ClientStream, cancel func()) error {
	var failed error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var word []byte
		if failed = stream.RecvMsg(&word); failed == nil {
			failed = strange(word)
		}
	}()
	select {
	case <-ended:
		if errors.Is(failed, io.EOF) {
			return nil
		}
		return c.reason(ctx, failed)
	case <-ctx.Done():
	}
	// Nobody else does this: gRPC forbids it at the same time. To the peer's goodbye no answer is owed.
	_ = stream.CloseSend() // always nil
	patience := time.AfterFunc(c.opts.Timeout, cancel)
	defer patience.Stop()
	<-ended // whether the peer has answered the goodbye makes no difference
	return endOf(ctx)
}

// strange is a word that no peer says in a watch.
func strange(word []byte) error {
	return fmt.Errorf("%w: the peer says %q in a watch", ErrProtocol, word)
}
