package status

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/httpserver"
)

const (
	// maxConns is how many clients are served at a time.
	maxConns = 32
	// requestTimeout bounds a client's request, replyTimeout the request and the reply together.
	requestTimeout, replyTimeout = 3 * time.Second, 10 * time.Second
)

// Serve serves an agent's status on l, to GET and HEAD requests, until the server is closed:
//
//	/healthz   200 as long as the agent answers
//	/readyz    200 while the node runs its workers or has finished (State.Ready), else 503
//	/status    the Snapshot as JSON
//	/metrics   metrics for Prometheus
func Serve(l net.Listener, observer *Observer, logger zerolog.Logger) *httpserver.Server {
	return httpserver.Serve(l, httpserver.Options{
		Handler: handler(observer), Name: "--status-addr", ReadTimeout: requestTimeout, WriteTimeout: replyTimeout,
		MaxConns: maxConns, Logger: logger,
	})
}

func handler(observer *Observer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		httpserver.Reply(w, http.StatusOK, "text/plain; charset=utf-8", []byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		state, code := observer.tracker.Snapshot().State, http.StatusServiceUnavailable
		if state.Ready() {
			code = http.StatusOK
		}
		httpserver.Reply(w, code, "text/plain; charset=utf-8", fmt.Appendln(nil, state))
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		data, err := json.MarshalIndent(observer.Observe(r.Context()), "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		httpserver.Reply(w, http.StatusOK, "application/json", append(data, '\n'))
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		registry := prometheus.NewRegistry() // one per request, so that all metrics come from the same Snapshot
		registry.MustRegister(metrics{observer.Observe(r.Context())})
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(w, r)
	})
	return mux
}
