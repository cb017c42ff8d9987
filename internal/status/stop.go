package status

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// StopTimeout bounds how long Stop waits for the end of a run.
const StopTimeout = 15 * time.Second

// Stop closes the run that cfg names and returns one line about it. It returns when the end of the run is recorded;
// workers may still be stopping. Its error is a [*StoppedLateError] if the run had ended before, or has ended
// otherwise, and a [*config.UsageError] if cfg does not name one run; nothing was stopped then. After another error the
// run may end or not.
func Stop(ctx context.Context, cfg *config.Stop, machine jobs.Folders, version string) (string, error) {
	late := fmt.Errorf("no result within %s", seconds.Format(StopTimeout))
	ctx, cancel := context.WithTimeoutCause(ctx, StopTimeout, late)
	defer cancel()
	what := fmt.Sprintf("run id %q at %s", cfg.RunID, cfg.Rendezvous.Endpoint)
	job, local, err := findLocal(ctx, cfg.Target, machine, choose)
	if err != nil {
		return "", err
	}
	done := ""
	if local {
		if cfg.Local && cfg.RunID == "" {
			if err := startedHere(job); err != nil {
				return "", err
			}
		}
		what = fmt.Sprintf("run id %q", job.RunID)
		done = " (" + job.describe() + ")"
		err = stopLocal(ctx, job, requester())
	} else {
		err = stopByStore(ctx, cfg, machine, version, requester())
	}
	if before, ok := errors.AsType[*closedBeforeError](err); ok {
		return "", &StoppedLateError{what, before.EndedError, before.by}
	}
	if ended, ok := errors.AsType[*rdzv.EndedError](err); ok {
		return "", &StoppedLateError{what, ended, ""}
	}
	if err != nil {
		return "", &noReplyError{what, err}
	}
	return "closed " + what + done, nil
}

// requester names the user and this host, so that people see who has stopped the run.
func requester() string {
	host, _ := os.Hostname()
	return userName(os.Geteuid()) + "@" + host
}

// stopLocal closes the run of a job by its launchers on this machine. It asks each of them: one that has not joined the
// run does not learn of the end from the others.
func stopLocal(ctx context.Context, job LocalJob, by string) error {
	closed := false
	var alone []string // the pids of launchers that end, but had not joined the run
	var unconfirmed, ended error
	for _, l := range job.launchers {
		err := requestStop(ctx, l, by)
		switch {
		case err == nil:
			closed = true
		case errors.Is(err, elastic.ErrNotJoined):
			alone = append(alone, namePID(l.PID))
		case closed: // this launcher has learned of the end from the run
		case errors.As(err, new(*rdzv.EndedError)):
			return err
		case errors.Is(err, errEnded):
			ended = fmt.Errorf("the launcher, pid %s, has just ended; its last line says how", namePID(l.PID))
		default:
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %w, but may still close the run", err, context.Cause(ctx))
			}
			unconfirmed = fmt.Errorf("the launcher, pid %s: %w; SIGTERM to it ends its workers", namePID(l.PID), err)
		}
	}
	switch {
	case closed:
		return nil
	case unconfirmed != nil:
		return unconfirmed
	case len(alone) > 0:
		return fmt.Errorf("no launcher here had joined the run: those of this machine end (pid %s), those of others go on",
			strings.Join(alone, ","))
	}
	return ended
}

// stopByStore closes the run of a job in its store.
func stopByStore(ctx context.Context, cfg *config.Stop, machine jobs.Folders, version, by string) error {
	store, leave, err := visit(ctx, coord.RoleCloser, &cfg.Target, machine, version)
	if err != nil {
		return err
	}
	defer leave()
	_, err = elastic.Close(ctx, store, cfg.RunID, by)
	return err
}

// StoppedLateError says that a run was not stopped, because it had ended by itself, or somebody had closed it before.
type StoppedLateError struct {
	what  string
	ended *rdzv.EndedError
	by    string // who has closed it through the same socket; empty if that is not known
}

func (e *StoppedLateError) Error() string {
	if e.by != "" {
		return fmt.Sprintf("%s is being closed already, by %s; its workers may still be stopping", e.what, e.by)
	}
	how := string(e.ended.Outcome.Ending)
	if e.ended.Late != nil {
		how = e.ended.Late.Describe(e.ended.Outcome.Ending)
	}
	return fmt.Sprintf("%s had already finished (%s); nothing was stopped", e.what, how)
}
