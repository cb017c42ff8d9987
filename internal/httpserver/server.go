// Package httpserver runs the small HTTP servers of elasticrun: the status and the health of an agent, and the health
// of a store.
//
// It bounds what a client may take: the time and the size of a request, and the number of connections. It does not know
// what it serves. A Server may be closed from any goroutine, once.
package httpserver

import (
	"context"
	"errors"
	"log" //nolint:depguard // http.Server takes no other logger
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	maxHeaderBytes = 8 << 10
	closeTimeout   = 500 * time.Millisecond
)

// Options configure a Server.
type Options struct {
	Handler http.Handler
	// Name is what the listener is for, in log lines: "--status-addr".
	Name string
	// ReadTimeout bounds reading a request; WriteTimeout bounds the request and its reply together.
	ReadTimeout, WriteTimeout time.Duration
	// MaxConns is the number of connections that may be open. A further one takes the place of the oldest for which no
	// handler runs, or is closed at once if there is none.
	MaxConns int
	Logger   zerolog.Logger
	// ClientErrorLevel is the level at which errors of clients are logged. Its zero value is zerolog.DebugLevel.
	ClientErrorLevel zerolog.Level
}

// Server serves HTTP on one listener. Close it.
type Server struct {
	http    *http.Server
	serving sync.WaitGroup
}

// Serve starts to serve the connections that l accepts. The server owns l from then on. If l fails, Serve logs that and
// the program continues.
func Serve(l net.Listener, o Options) *Server {
	s := &Server{http: &http.Server{
		Handler: busy(o.Handler), ConnContext: withConn,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: log.New(lineLogger{o.Logger, o.ClientErrorLevel}, "", 0),
	}}
	// An idle connection would hold one of MaxConns, and would delay Close.
	s.http.SetKeepAlivesEnabled(false)
	l = &limited{Listener: l, most: o.MaxConns}
	s.serving.Go(func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error().Err(err).Msgf("%s is served no longer; everything else goes on", o.Name)
		}
	})
	return s
}

// Close stops the server. Requests in progress get half a second; then their connections are closed. A handler that
// still runs then may outlast Close.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if s.http.Shutdown(ctx) != nil { // a client that sends no request, or does not read its reply
		_ = s.http.Close()
	}
	s.serving.Wait()
}

// Reply writes a reply that no cache keeps.
func Reply(w http.ResponseWriter, code int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) // a client that has gone misses nothing
}

// lineLogger logs each line that is written to it.
type lineLogger struct {
	log   zerolog.Logger
	level zerolog.Level
}

func (w lineLogger) Write(line []byte) (int, error) {
	w.log.WithLevel(w.level).Msg(strings.TrimSpace(string(line)))
	return len(line), nil
}
