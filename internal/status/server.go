package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log" //nolint:depguard // http.Server takes no other logger
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
)

const (
	// maxConns is how many clients are served at a time.
	maxConns = 32
	// headerTime is how long a client may take to ask, answerTime for question and answer together.
	headerTime, answerTime = 3 * time.Second, 10 * time.Second
	maxHeader              = 8 << 10
	stopBound              = 500 * time.Millisecond
)

// Server serves an agent's status over HTTP, to GET and HEAD:
//
//	/healthz   200 as long as the agent answers
//	/readyz    200 while the node does what it is there for (State.Ready), else 503
//	/status    the Snapshot as JSON
//	/metrics   metrics for Prometheus
type Server struct {
	http    *http.Server
	running sync.WaitGroup
}

// Serve begins to serve what l accepts. Close ends it.
func Serve(l net.Listener, looker *Looker, logger zerolog.Logger) *Server {
	s := &Server{http: &http.Server{
		Handler: handler(looker), ReadHeaderTimeout: headerTime, ReadTimeout: headerTime, WriteTimeout: answerTime, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(complaints{logger}, "", 0),
	}}
	s.http.SetKeepAlivesEnabled(false) // or clients could hold on to the connections that there are
	s.running.Go(func() {
		if err := s.http.Serve(limit(l, maxConns)); !errors.Is(err, http.ErrServerClosed) {
			logger.Warn().Err(err).Msg("the job goes on without its --status-addr")
		}
	})
	return s
}

// Close ends the serving. Answers under way get half a second.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), stopBound)
	defer cancel()
	if s.http.Shutdown(ctx) != nil { // a client that says nothing, or takes nothing
		_ = s.http.Close()
	}
	s.running.Wait()
}

// complaints are what the server has to say of its clients, which may be anybody and as many as they like.
type complaints struct{ log zerolog.Logger }

func (c complaints) Write(line []byte) (int, error) {
	c.log.Debug().Msg(strings.TrimSpace(string(line)))
	return len(line), nil
}

func handler(looker *Looker) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "text/plain; charset=utf-8", []byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		state, code := looker.board.Snapshot().State, http.StatusServiceUnavailable
		if state.Ready() {
			code = http.StatusOK
		}
		answer(w, code, "text/plain; charset=utf-8", fmt.Appendln(nil, state))
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		data, err := json.MarshalIndent(looker.Look(r.Context()), "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer(w, http.StatusOK, "application/json", append(data, '\n'))
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		registry := prometheus.NewRegistry() // one for each request, so that its metrics are of one look, and end with the request
		registry.MustRegister(newMetrics(looker.Look(r.Context())))
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(w, r)
	})
	return mux
}

func answer(w http.ResponseWriter, code int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) // a client that has gone misses nothing
}
