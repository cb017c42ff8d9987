package storeserver

import (
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/httpserver"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

const (
	healthPath = "/healthz"
	// replyTimeout bounds the store's reply. Kubernetes' probes time out after a second by default.
	replyTimeout = 500 * time.Millisecond
	// clientTimeout bounds a request to the health port.
	clientTimeout = 5 * time.Second
	// maxProbes is how many connections the health port may have at a time. Each takes a file descriptor that the store
	// could need.
	maxProbes = 32
)

// health serves over HTTP whether a store works.
type health struct {
	counts   func() counts   // reads the store's counters; it may block
	stopping <-chan struct{} // closed when the store stops
	failed   <-chan struct{} // closed when the agents' store has failed; nil: never
	started  time.Time
	asking   chan struct{} // full while counts runs, so that requests to a stuck store do not pile up in it
}

// counts are the counters of both halves of a store.
type counts struct {
	workers tcpstore.Stats
	agents  agentCounts
}

// agentCounts are the counters of what agents store, each with its limit.
type agentCounts struct {
	Runs       quantity `json:"runs"`
	Sessions   quantity `json:"sessions"`
	Handshakes quantity `json:"handshakes"` // connections without a session
	Keys       quantity `json:"keys"`
	Memory     quantity `json:"memory_bytes"`
}

// quantity is a count and its limit.
type quantity struct {
	Now   int `json:"now"`
	Limit int `json:"limit"`
}

func newHealth(read func() counts, stopping <-chan struct{}) *health {
	return &health{counts: read, stopping: stopping, started: time.Now(), asking: make(chan struct{}, 1)}
}

// healthReply is the body of a reply.
type healthReply struct {
	Status string  `json:"status"`
	Uptime float64 `json:"uptime_seconds"`
	*healthCounts
}

type healthCounts struct {
	Open     int                        `json:"open"`
	Accepted uint64                     `json:"accepted"`
	Refused  map[tcpstore.Reason]uint64 `json:"refused"`
	Keys     int                        `json:"keys"`
	Memory   int64                      `json:"memory_bytes"`
	Agents   agentCounts                `json:"agents"`
}

// check returns the status code and the body of a reply.
func (h *health) check() (int, healthReply) {
	a := healthReply{Status: "ok", Uptime: time.Since(h.started).Round(time.Millisecond).Seconds()}
	got, ok := h.ask()
	if !ok {
		a.Status = "stuck"
		return http.StatusServiceUnavailable, a
	}
	stats := got.workers
	a.healthCounts = &healthCounts{
		Open: stats.Open, Accepted: stats.Accepted, Refused: stats.Refused, Keys: stats.Keys,
		Memory: stats.Memory + int64(got.agents.Memory.Now), Agents: got.agents,
	}
	select {
	case <-h.stopping:
		a.Status = "stopping"
		return http.StatusServiceUnavailable, a
	default:
	}
	select {
	case <-h.failed:
		a.Status = "failed"
		return http.StatusServiceUnavailable, a
	default:
		return http.StatusOK, a
	}
}

// ask reads the store's counters. It returns false if the store did not reply in time.
func (h *health) ask() (counts, bool) {
	timeout := time.NewTimer(replyTimeout)
	defer timeout.Stop()
	select {
	case h.asking <- struct{}{}:
	case <-timeout.C:
		return counts{}, false
	}
	answered := make(chan counts, 1)
	go func() {
		answered <- h.counts()
		<-h.asking
	}()
	select {
	case got := <-answered:
		return got, true
	case <-timeout.C:
		return counts{}, false
	}
}

func (h *health) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	code, body := h.check()
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	httpserver.Reply(w, code, "application/json", append(text, '\n'))
}

// serve serves h on l until stop is called. stop waits for every goroutine, and so for the store's reply.
func (h *health) serve(l net.Listener, logger zerolog.Logger) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("GET "+healthPath, h)
	server := httpserver.Serve(l, httpserver.Options{
		Handler: mux, Name: "--health", ReadTimeout: clientTimeout, WriteTimeout: clientTimeout,
		MaxConns: maxProbes, Logger: logger, ClientErrorLevel: zerolog.WarnLevel,
	})
	return func() {
		server.Close()
		h.asking <- struct{}{}
	}
}
