package status

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/httpserver"
)

const (
	// maxConns is how many clients are served at a time.
	maxConns = 32
	// requestTimeout bounds a client's request. replyTimeout bounds the time from its header to the end of the reply.
	requestTimeout, replyTimeout = 3 * time.Second, 10 * time.Second
)

// Serve serves an agent's status on l, to GET and HEAD requests, until the server is closed:
//
//	/          the list of the paths
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

// page is a path of the server.
type page struct {
	path, about string
	serve       http.HandlerFunc
}

// pages returns what is served.
func pages(observer *Observer) []page {
	return []page{
		{"/healthz", "200 as long as the agent runs", func(w http.ResponseWriter, _ *http.Request) {
			httpserver.Reply(w, http.StatusOK, plain, []byte("ok\n"))
		}},
		{"/readyz", "200 while the workers run or have succeeded, else 503", func(w http.ResponseWriter, _ *http.Request) {
			state, code := observer.state().State, http.StatusServiceUnavailable
			if state.Ready() {
				code = http.StatusOK
			}
			httpserver.Reply(w, code, plain, fmt.Appendln(nil, state))
		}},
		{"/status", "the node's status as JSON", func(w http.ResponseWriter, r *http.Request) {
			data, err := json.MarshalIndent(observer.Observe(r.Context()), "", "  ")
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			httpserver.Reply(w, http.StatusOK, "application/json", append(data, '\n'))
		}},
		{"/metrics", "metrics for Prometheus", func(w http.ResponseWriter, r *http.Request) {
			registry := prometheus.NewRegistry() // one per request, so that all metrics come from the same Snapshot
			registry.MustRegister(metrics{observer.Observe(r.Context())})
			promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(w, r)
		}},
	}
}

// plain is the content type of text.
const plain = "text/plain; charset=utf-8"

func handler(observer *Observer) http.Handler {
	mux, all := http.NewServeMux(), pages(observer)
	var index strings.Builder
	index.WriteString("elasticrun: the status of one node\n\n")
	for _, p := range all {
		mux.HandleFunc("GET "+p.path, p.serve)
		fmt.Fprintf(&index, "%-9s %s\n", p.path, p.about)
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		httpserver.Reply(w, http.StatusOK, plain, []byte(index.String()))
	})
	return mux
}
