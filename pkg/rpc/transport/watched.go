package transport

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// maxRefusal is how much of the reason for a refusal is sent, in bytes: it goes into a header.
const maxRefusal = 1 << 10

// watched is a client's watch of this server.
type watched struct {
	stream grpc.ServerStream

	mu     sync.Mutex // held while a message is sent
	parted bool       // this side has said goodbye
}

func (w *watched) say(word byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parted = w.parted || word == watchGoodbye
	return w.stream.SendMsg(parts{{word}})
}

func (w *watched) saidGoodbye() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.parted
}

// beWatched is the watch's method. It lasts as long as the watch.
func beWatched(srv any, stream grpc.ServerStream) error {
	s, w := srv.(*Server), &watched{stream: stream}
	var hello []byte
	if err := stream.RecvMsg(&hello); err != nil {
		return err
	}
	if s.opts.Watched == nil {
		return status.Error(codes.FailedPrecondition, "nobody here is watched")
	}
	ended, err := s.opts.Watched(hello)
	if err != nil {
		text := err.Error()
		return status.Error(codes.FailedPrecondition, strings.ToValidUTF8(text[:min(len(text), maxRefusal)], ""))
	}
	err = s.hold(w)
	if ended != nil {
		ended(err)
	}
	return nil
}

// hold keeps the watch until it ends, and says how it did, as ServerOptions.Watched wants it.
func (s *Server) hold(w *watched) error {
	if !s.register(w) {
		return ErrClosed
	}
	defer s.forget(w)
	err := w.say(watchBegun)
	if err == nil {
		var more []byte
		err = w.stream.RecvMsg(&more)
	}
	switch {
	case w.saidGoodbye() || s.isEnding():
		return ErrClosed
	case errors.Is(err, io.EOF):
		return nil
	}
	from := "a client"
	if p, ok := peer.FromContext(w.stream.Context()); ok {
		from = p.Addr.String()
	}
	if err == nil {
		return fmt.Errorf("watched from %s: %w: a message after the hello", from, ErrProtocol)
	}
	return fmt.Errorf("watched from %s: %w without goodbye: %s", from, ErrConnection, status.Convert(err).Message())
}

// register takes note of a watch, unless the server is ending.
func (s *Server) register(w *watched) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return false
	}
	s.watches[w] = struct{}{}
	return true
}

func (s *Server) forget(w *watched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, w)
}

func (s *Server) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// sayGoodbye lets no further watch begin, and ends those there are: their clients answer it by ending the stream.
func (s *Server) sayGoodbye() {
	s.mu.Lock()
	s.ending, s.leaving = true, true
	watches := make([]*watched, 0, len(s.watches))
	for w := range s.watches {
		watches = append(watches, w)
	}
	s.mu.Unlock()
	for _, w := range watches {
		_ = w.say(watchGoodbye) // fails only where the client is gone already
	}
}
