package transport

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"google.golang.org/grpc"
)

// TestBothSayGoodbye ends a watch at both ends at the same time.
func TestBothSayGoodbye(t *testing.T) {
	for range 50 {
		w := newWatchRecorder()
		s, addr := serve(t, ServerOptions{Watched: w.watched})
		p := newPool(t, ClientOptions{})
		both := watch(t, p, addr, w)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Shutdown(within(t, testTimeout)); err != nil {
				t.Error(err)
			}
		})
		if err := <-w.ended; !errors.Is(err, ErrClosed) { // Shutdown ends the watch before it sends the goodbye
			t.Errorf("the server's end: %v", err)
		}
		both.stop(errEnough)
		if err := <-both.ended; err != nil && !errors.Is(err, errEnough) {
			t.Errorf("the client's end: %v", err)
		}
		wg.Wait()
	}
}

// openWatch opens the stream of a watch and sends hello if it is not empty. It sends nothing else and answers no
// goodbye. It returns when the server has registered the watch.
func openWatch(t *testing.T, p *Pool, addr, hello string) grpc.ClientStream {
	t.Helper()
	checkEcho(t, p, addr)
	c, _ := pooled(p, addr)
	stream, err := c.grpc.NewStream(t.Context(), &watchStream, watchPath)
	if err != nil {
		t.Fatal(err)
	}
	if hello != "" {
		var word []byte
		if err := errors.Join(stream.SendMsg(parts{[]byte(hello)}), stream.RecvMsg(&word)); err != nil ||
			string(word) != watchBegun {
			t.Fatalf("the watch did not begin: %q, %v", word, err)
		}
	}
	checkEcho(t, p, addr) // the server handles it after the stream
	return stream
}

// TestShutdownWaitsForNoWord has clients that send nothing: the server sends the goodbye and does not wait.
func TestShutdownWaitsForNoWord(t *testing.T) {
	for name, hello := range map[string]string{"no hello": "", "no goodbye": "worker1"} {
		t.Run(name, func(t *testing.T) {
			w := newWatchRecorder()
			s, addr := serve(t, ServerOptions{Handle: echo, Watched: w.watched})
			stream := openWatch(t, newPool(t, ClientOptions{}), addr, hello)
			if err := s.Shutdown(within(t, testTimeout)); err != nil {
				t.Error(err)
			}
			if err := stream.RecvMsg(new([]byte)); !errors.Is(err, io.EOF) {
				t.Errorf("the client hears %v, want goodbye", err)
			}
			if hello == "" {
				return
			}
			if err := <-w.ended; !errors.Is(err, ErrClosed) {
				t.Errorf("the server's end: %v", err)
			}
		})
	}
}

// TestUnknownMessage watches servers that send unknown messages.
func TestUnknownMessage(t *testing.T) {
	for name, words := range map[string][]string{"at once": {"x"}, "later": {watchBegun, watchBegun}} {
		t.Run(name, func(t *testing.T) {
			ln, served, s := listen(t), make(chan struct{}), grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}))
			s.RegisterService(&grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
				StreamName: watchMethod, ServerStreams: true, ClientStreams: true,
				Handler: func(_ any, stream grpc.ServerStream) error {
					for _, word := range words {
						if err := stream.SendMsg(parts{[]byte(word)}); err != nil {
							return err
						}
					}
					<-stream.Context().Done()
					return context.Cause(stream.Context())
				},
			}}}, s)
			go func() {
				defer close(served)
				_ = s.Serve(ln)
			}()
			defer func() {
				s.Stop()
				<-served
			}()
			err := newPool(t, ClientOptions{}).Watch(within(t, testTimeout), ln.Addr().String(), []byte("x"), nil)
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("got %v", err)
			}
		})
	}
}
