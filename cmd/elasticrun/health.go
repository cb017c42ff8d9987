package main

import (
	"context"
	"encoding/json"
	"errors"
	"log" //nolint:depguard // http.Server takes no other logger
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

const (
	healthPath = "/healthz"
	// healthBound is how long the store may take to answer. Kubernetes, by default, asks with a
	// patience of a second.
	healthBound = 500 * time.Millisecond
	// healthPatience is how long a client of the health port may take.
	healthPatience = 5 * time.Second
)

// health tells over HTTP whether a store answers.
type health struct {
	stats    func() tcpstore.Stats // asks the store; it may block
	stopping <-chan struct{}       // closed when the store is to stop
	failed   <-chan struct{}       // closed when the agents' store has ended, and so will this one; nil is never
	started  time.Time
	asking   chan struct{} // holds one element while stats runs: a store that is stuck is asked once, not for every request
}

func newHealth(stats func() tcpstore.Stats, stopping <-chan struct{}) *health {
	return &health{stats: stats, stopping: stopping, started: time.Now(), asking: make(chan struct{}, 1)}
}

// healthAnswer is the body of an answer.
type healthAnswer struct {
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
}

// answer returns the status code and the body.
func (h *health) answer() (int, healthAnswer) {
	a := healthAnswer{Status: "ok", Uptime: time.Since(h.started).Round(time.Millisecond).Seconds()}
	stats, ok := h.ask()
	if !ok {
		a.Status = "stuck"
		return http.StatusServiceUnavailable, a
	}
	a.healthCounts = &healthCounts{
		Open: stats.Open, Accepted: stats.Accepted, Refused: stats.Refused, Keys: stats.Keys, Memory: stats.Memory,
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

// ask asks the store. It returns false if that did not answer in time.
func (h *health) ask() (tcpstore.Stats, bool) {
	bound := time.NewTimer(healthBound)
	defer bound.Stop()
	select {
	case h.asking <- struct{}{}:
	case <-bound.C:
		return tcpstore.Stats{}, false
	}
	answered := make(chan tcpstore.Stats, 1)
	go func() {
		answered <- h.stats()
		<-h.asking
	}()
	select {
	case stats := <-answered:
		return stats, true
	case <-bound.C:
		return tcpstore.Stats{}, false
	}
}

func (h *health) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	code, answer := h.answer()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer) // a client that has gone misses nothing
}

// warnings logs each line that is written to it.
type warnings struct{ log zerolog.Logger }

func (w warnings) Write(line []byte) (int, error) {
	w.log.Warn().Msg(strings.TrimSpace(string(line)))
	return len(line), nil
}

// serve answers what l accepts until stop is called, which waits for every goroutine, the store's answer included.
func (h *health) serve(l net.Listener, logger zerolog.Logger) (stop func(context.Context)) {
	mux := http.NewServeMux()
	mux.Handle("GET "+healthPath, h)
	server := &http.Server{
		Handler: mux, ReadTimeout: healthPatience, WriteTimeout: healthPatience, MaxHeaderBytes: 8 << 10,
		ErrorLog: log.New(warnings{logger}, "", 0),
	}
	server.SetKeepAlivesEnabled(false) // so that none is left idle at the end
	var done sync.WaitGroup
	done.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			logger.Error().Err(err).Msg("the store goes on without its health port")
		}
	})
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, healthBound)
		defer cancel()
		if server.Shutdown(ctx) != nil { // a client that says nothing
			_ = server.Close()
		}
		done.Wait()
		h.asking <- struct{}{}
	}
}
