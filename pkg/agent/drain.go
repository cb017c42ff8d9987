package agent

import (
	"context"
	"errors"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
)

const (
	// settleTimeout is how long the agent waits for the output of stopped workers before it reports to the rendezvous
	// that they are gone. It must stay well below the 10 s by which --rejoin-timeout exceeds the grace. Otherwise a node
	// whose console nobody reads would count as lost.
	settleTimeout = 5 * time.Second
	// drainTimeout is how long the output may take after the launcher received a stop signal.
	drainTimeout = 5 * time.Second
	// failedDrainTimeout is how long it may take at the end of a failed job, because a person or a scheduler waits for its
	// end. There is no limit for a job that has succeeded: its reader may be paging through the output.
	failedDrainTimeout = time.Minute
	// stuckDrainTimeout is how long it may take if a process that does not die holds its streams open.
	stuckDrainTimeout = 2 * time.Second
)

// settle waits for the output of workers that are gone. It leaves to awaitReader and drain what a slow console has not
// taken by then.
func (a *Agent) settle(ctx context.Context, p Processes) {
	bounded, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if p.WaitOutput(bounded) {
		a.warnIncomplete(p.Drain(bounded))
		return
	}
	a.unread = p
}

// awaitReader delays the start of a round until the output of the previous one is written. So a slow reader slows the
// workers down, and no output is lost. A Stop of the round, which sets a.halt, ends the delay.
func (a *Agent) awaitReader(ctx context.Context) error {
	if a.unread == nil {
		return nil
	}
	taken := make(chan struct{})
	giveUp := inBackground(ctx, func(ctx context.Context) {
		defer close(taken)
		a.unread.WaitOutput(ctx)
	})
	err := a.delayStart(ctx, taken)
	giveUp()
	if err == nil && a.halt == nil {
		a.warnIncomplete(a.unread.Drain(ctx))
		a.unread = nil
	}
	return err
}

// drain waits until the output of all workers is written, and gives up on what the console does not take. A job that
// has succeeded waits for its reader until the launcher receives a stop signal. err is what the run ends with.
func (a *Agent) drain(ctx context.Context, succeeded bool, err error) {
	if a.unread == nil {
		return
	}
	bounded, cancel := drainContext(ctx, succeeded, err)
	defer cancel()
	a.warnIncomplete(a.unread.Drain(bounded))
	a.unread = nil
}

// drainContext returns a context that ends when drain must give up.
func drainContext(ctx context.Context, succeeded bool, err error) (context.Context, context.CancelFunc) {
	switch {
	case errors.As(err, new(*procs.StuckError)):
		return context.WithTimeout(context.WithoutCancel(ctx), stuckDrainTimeout)
	case succeeded:
		return withGrace(ctx, drainTimeout)
	}
	failed, end := context.WithTimeout(ctx, failedDrainTimeout)
	bounded, cancel := withGrace(failed, drainTimeout)
	return bounded, func() {
		cancel()
		end()
	}
}

func (a *Agent) warnIncomplete(err error) {
	if err != nil {
		a.log.Warn().Err(err).Msg("output of workers is incomplete")
	}
}
