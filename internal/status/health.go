package status

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/httpserver"
)

const (
	// healthTimeout is how long the agent may be silent and still count as alive, as in torch 2.14
	// (torch/distributed/elastic/agent/server/local_elastic_agent.py, _setup_healthcheck).
	healthTimeout = time.Minute
	// askTimeout is how long a request waits for the agent. A kubelet gives up after 1 s by default.
	askTimeout = 500 * time.Millisecond
)

// Health is the reply to a health check.
type Health struct {
	Alive bool `json:"alive"`
	// LastProgress is how many seconds ago the agent's loop made progress, as far as health checks have seen it.
	LastProgress float64        `json:"last_progress_seconds"`
	State        State          `json:"state"`
	Workers      []WorkerHealth `json:"workers"`
}

// WorkerHealth is a worker in a Health.
type WorkerHealth struct {
	Rank      int         `json:"rank"` // -1 before it was started
	LocalRank int         `json:"local_rank"`
	PID       int         `json:"pid"` // 0 before it was started
	State     WorkerState `json:"state"`
}

// liveness remembers when an agent has made progress. Its methods may be called concurrently.
type liveness struct {
	mu       sync.Mutex
	progress time.Time // when a check last saw progress
	silent   time.Time // the first check since then that saw none; zero if there was none
}

// record records whether the agent makes progress now. It returns whether the agent counts as alive, and how long ago a
// check last saw progress. The time in which nobody asked does not count against the agent.
func (l *liveness) record(now time.Time, progress bool) (alive bool, since time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case progress:
		l.progress, l.silent = now, time.Time{}
	case l.silent.IsZero():
		l.silent = now
	}
	return l.silent.IsZero() || now.Sub(l.silent) <= healthTimeout, now.Sub(l.progress)
}

// ServeHealth answers health checks on l until the server is closed: 200 if the agent is alive, else 503, on every
// path. It calls answers while workers run; answers must report whether the agent's loop replies before ctx ends. In
// other states the agent waits for something that has a limit of its own, and counts as alive.
func ServeHealth(
	l net.Listener, observer *Observer, answers func(ctx context.Context) bool, logger zerolog.Logger,
) *httpserver.Server {
	return httpserver.Serve(l, httpserver.Options{
		Handler: healthHandler(observer, &liveness{progress: time.Now()}, answers), Name: HealthPortEnv,
		ReadTimeout: requestTimeout, WriteTimeout: replyTimeout, MaxConns: maxConns, Logger: logger,
	})
}

func healthHandler(observer *Observer, alive *liveness, answers func(ctx context.Context) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
			return
		}
		h, code := observer.health(r.Context(), alive, answers), http.StatusServiceUnavailable
		if h.Alive {
			code = http.StatusOK
		}
		data, err := json.Marshal(h)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		httpserver.Reply(w, code, "application/json", append(data, '\n'))
	})
}

// HealthPortEnv is the variable with the port of ServeHealth.
const HealthPortEnv = "TORCHELASTIC_HEALTH_CHECK_PORT"

// health asks the agent's loop whether it makes progress, and returns the reply to a health check.
func (o *Observer) health(ctx context.Context, alive *liveness, answers func(ctx context.Context) bool) Health {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	progress := o.tracker.Snapshot().State != Running || answers(ctx) ||
		o.tracker.Snapshot().State != Running // the agent has stopped watching workers meanwhile
	s := o.state()
	h := Health{State: s.State, Workers: []WorkerHealth{}}
	ok, since := alive.record(time.Now(), progress)
	h.Alive, h.LastProgress = ok, since.Round(time.Millisecond).Seconds()
	for _, w := range s.Workers {
		h.Workers = append(h.Workers, WorkerHealth{Rank: w.Rank, LocalRank: w.LocalRank, PID: w.PID, State: w.State})
	}
	return h
}
