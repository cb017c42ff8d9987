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
	var over bool
	if err == nil {
		over, err = c.next(stream)
	}
	if err != nil {
		return c.reason(ctx, err)
	}
	if over {
		return nil
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
		_, failed = c.next(stream)
	}()
	select {
	case <-ended:
		if failed != nil {
			return c.reason(ctx, failed)
		}
		return nil
	case <-ctx.Done():
	}
	_ = stream.CloseSend() // always nil
	patience := time.AfterFunc(c.opts.Timeout, cancel)
	defer patience.Stop()
	<-ended // whether the peer has answered the goodbye makes no difference
	return endOf(ctx)
}

// next receives the peer's next word, and answers goodbye with goodbye. It tells whether the watch is over.
func (c *conn) next(stream grpc.ClientStream) (over bool, err error) {
	var word []byte
	err = stream.RecvMsg(&word)
	switch {
	case errors.Is(err, io.EOF):
		return true, nil
	case err != nil:
		return false, err
	case len(word) == 1 && word[0] == watchBegun:
		return false, nil
	case len(word) != 1 || word[0] != watchGoodbye:
		return false, fmt.Errorf("the peer says %q in a watch", word)
	}
	_ = stream.CloseSend() // always nil
	for err == nil {
		err = stream.RecvMsg(&word)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return true, err
}
