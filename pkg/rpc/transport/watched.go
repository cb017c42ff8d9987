package transport

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// maxRefusal is the longest reason for a refusal in bytes, because it is sent in a header.
const maxRefusal = 1 << 10

// beWatched is the method for watches. It lasts as long as the watch. Returning nil says goodbye.
func beWatched(srv any, stream grpc.ServerStream) error {
	s := srv.(*Server)
	hello, err := s.hear(stream)
	switch {
	case errors.Is(err, ErrClosed):
		return nil
	case err != nil:
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
	err = s.hold(stream)
	if ended != nil {
		ended(err)
	}
	return nil
}

// hold keeps the watch until it ends, and returns the error for ServerOptions.Watched.
func (s *Server) hold(stream grpc.ServerStream) error {
	err := stream.SendMsg(parts{[]byte(watchBegun)})
	if err == nil {
		_, err = s.hear(stream)
	}
	switch {
	case s.isEnding():
		return ErrClosed
	case errors.Is(err, io.EOF):
		return nil
	}
	from := "a client"
	if p, ok := peer.FromContext(stream.Context()); ok {
		from = p.Addr.String()
	}
	if err == nil {
		return fmt.Errorf("watched from %s: %w: a message after the hello", from, ErrProtocol)
	}
	return fmt.Errorf("watched from %s: %w without goodbye: %s", from, ErrConnection, status.Convert(err).Message())
}

// hear returns a client's next message, or ErrClosed when this server shuts down, so that Shutdown waits for no client.
// The receiving goroutine ends with the stream, when beWatched has returned.
func (s *Server) hear(stream grpc.ServerStream) ([]byte, error) {
	var word []byte
	heard := make(chan error, 1)
	s.hearing.Go(func() { heard <- stream.RecvMsg(&word) })
	select {
	case err := <-heard:
		return word, err
	case <-s.leaving:
		return nil, ErrClosed
	}
}
