package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
)

// Watch sends hello to a peer and lasts until one end ends it or is lost. If begun is not nil, Watch calls it when
// the peer has accepted. Watch returns nil after the peer's goodbye. When ctx ends, Watch says goodbye, so that the
// peer sees an orderly end, and returns the context's cause, or [ErrTimeout] for a deadline. It returns [ErrRefused]
// if the peer refuses the watch, and [ErrConnection] if the peer is lost or was not reached.
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
	// After ctx has ended, the stream lasts until the goodbye is sent. A watch that the peer has not accepted needs none.
	streaming, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	unagreed := context.AfterFunc(ctx, cancel)
	defer unagreed()
	stream, err := c.grpc.NewStream(streaming, &watchStream, watchPath)
	if err == nil {
		err = stream.SendMsg(parts{hello})
	}
	if errors.Is(err, io.EOF) { // the peer has ended the stream: receive its status
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

// attend waits for the end of an accepted watch.
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
	// No other goroutine sends: gRPC forbids concurrent sends. The peer's goodbye needs no answer.
	_ = stream.CloseSend() // always nil
	timer := time.AfterFunc(c.opts.Timeout, cancel)
	defer timer.Stop()
	<-ended // the peer's answer to the goodbye makes no difference
	return endOf(ctx)
}

// strange returns the error for a message that no peer sends in a watch.
func strange(word []byte) error {
	return fmt.Errorf("%w: the peer says %q in a watch", ErrProtocol, word)
}
