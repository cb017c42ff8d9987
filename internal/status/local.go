package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/httpserver"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/internal/logging"
	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// maxRequester bounds the name of the person who stops a job, in bytes.
const maxRequester = 200

// CloseRun closes the run of an agent. by names the requester, for people. The error is an [*rdzv.EndedError] if the
// run had ended before, or has ended otherwise, and [elastic.ErrNotJoined] if only the agent ends. After another error
// it is unknown whether the run ends.
type CloseRun func(ctx context.Context, by string) error

// ServeLocal serves an agent's status on l to commands of the same user, and closes the run for them. l decides who may
// connect.
//
//	GET  /status   the Snapshot as JSON, as for Serve
//	GET  /state    the Snapshot without what would have to be measured
//	GET  /stacks   what the workers are doing; with ?threads=all all of their threads
//	GET  /secret   the secret of the job's agents, for commands that ask the job's store
//	POST /stop     closes the run; the body says who asks
func ServeLocal(
	l net.Listener, observer *Observer, secret config.Secret, closeRun CloseRun, logger zerolog.Logger,
) *httpserver.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		replyJSON(w, observer.Observe(r.Context()))
	})
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		replyJSON(w, observer.state())
	})
	mux.HandleFunc("GET /stacks", func(w http.ResponseWriter, r *http.Request) {
		replyJSON(w, observer.Stacks(r.Context(), r.URL.RawQuery == allThreadsParam))
	})
	mux.HandleFunc("GET /secret", func(w http.ResponseWriter, _ *http.Request) {
		replyJSON(w, secretReply{secret.Reveal()})
	})
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, maxRequester))
		by := printable.Line(string(body))
		logging.Always(logger).Str("by", by).Msg("elasticrun stop asks to close the run")
		replyJSON(w, replyTo(closeRun(r.Context(), by)))
	})
	return httpserver.Serve(l, httpserver.Options{
		Handler: mux, Name: "the socket of elasticrun ps", ReadTimeout: requestTimeout, WriteTimeout: StopTimeout,
		MaxConns: maxConns, Logger: logger,
	})
}

// allThreadsParam asks for all threads of each worker.
const allThreadsParam = "threads=all"

// stopReply is the reply to a request to stop. It is empty if the run was closed.
type stopReply struct {
	Ended     *rdzv.Outcome `json:"ended,omitempty"`      // how the run has ended instead
	NotJoined bool          `json:"not_joined,omitempty"` // only the launcher ends
	Problem   string        `json:"problem,omitempty"`    // why it is unknown whether the run ends
}

func replyTo(err error) stopReply {
	if ended, ok := errors.AsType[*rdzv.EndedError](err); ok {
		return stopReply{Ended: &ended.Outcome}
	}
	if err != nil {
		return stopReply{Problem: err.Error(), NotJoined: errors.Is(err, elastic.ErrNotJoined)}
	}
	return stopReply{}
}

func replyJSON(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	httpserver.Reply(w, http.StatusOK, "application/json", data)
}

// errEnded is the error of a request to a launcher that has ended since it was listed.
var errEnded = errors.New("it has just ended")

// askLauncher sends a request to a launcher of this machine.
func askLauncher(ctx context.Context, l jobs.Running, method, path, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://launcher"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	data, err := roundTrip(req, func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) })
	switch {
	case ctx.Err() != nil:
		err = errors.New("it does not reply")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), closedSilently(err):
		err = errEnded
	}
	return data, err
}

// fetchLocal requests the status of a launcher of this machine: path is /status or /state.
func fetchLocal(ctx context.Context, l jobs.Running, path string) (Snapshot, error) {
	data, err := askLauncher(ctx, l, http.MethodGet, path, "")
	if err != nil {
		return Snapshot{}, err
	}
	return parse(data)
}

// closedBeforeError says that somebody has closed a run, which need not have ended yet.
type closedBeforeError struct {
	*rdzv.EndedError
	by string
}

// Unwrap returns the rdzv.EndedError.
func (e *closedBeforeError) Unwrap() error { return e.EndedError }

// requestStop makes a launcher of this machine close its run. Its errors are those of CloseRun.
func requestStop(ctx context.Context, l jobs.Running, by string) error {
	data, err := askLauncher(ctx, l, http.MethodPost, "/stop", by)
	if err != nil {
		return err
	}
	var reply stopReply
	switch err := json.Unmarshal(data, &reply); {
	case err != nil:
		return fmt.Errorf("its reply is no result: %w", err)
	case reply.Ended != nil && reply.Ended.ClosedBy != "":
		return &closedBeforeError{&rdzv.EndedError{Outcome: *reply.Ended}, printable.Line(reply.Ended.ClosedBy)}
	case reply.Ended != nil:
		return &rdzv.EndedError{Outcome: *reply.Ended}
	case reply.NotJoined:
		return elastic.ErrNotJoined
	case reply.Problem != "":
		return errors.New(reply.Problem)
	}
	return nil
}
