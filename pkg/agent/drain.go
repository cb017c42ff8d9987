package agent

import (
	"context"
	"errors"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
)

const (
	// settleBound is how long the output of stopped workers may take before the rendezvous is told that they are gone: well below the
	// 10 s by which --rejoin-timeout exceeds the grace, or a node whose console nobody reads would be taken for lost.
	settleBound = 5 * time.Second
	// drainBound is how long it may take once the launcher was told to stop.
	drainBound = 5 * time.Second
	// drainPatience is how long it may take at the end of a job that has failed: somebody waits for its end. One who pages through the
	// output of a job that has succeeded may take his time.
	drainPatience = time.Minute
	// partingBound is how long it may take where a process that does not die holds its streams open.
	partingBound = 2 * time.Second
)

// settle waits for the output of workers that are gone, and leaves to awaitReader and drain what a slow console has not taken by then.
func (a *Agent) settle(ctx context.Context, p Processes) {
	bounded, cancel := context.WithTimeout(ctx, settleBound)
	defer cancel()
	if p.WaitOutput(bounded) {
		a.drained(p.Drain(bounded))
		return
	}
	a.unread = p
}

// awaitReader holds up the start of a round until the output of the one before is where it belongs: a slow reader slows the
// workers down, and nothing of theirs is lost. A Stop of the round, which sets a.halt, ends that.
func (a *Agent) awaitReader(ctx context.Context) error {
	if a.unread == nil {
		return nil
	}
	waiting, giveUp := context.WithCancel(ctx)
	taken := make(chan struct{})
	go func() {
		defer close(taken)
		a.unread.WaitOutput(waiting)
	}()
	err := a.holdStart(ctx, taken)
	giveUp()
	<-taken
	if err == nil && a.halt == nil {
		a.drained(a.unread.Drain(ctx))
		a.unread = nil
	}
	return err
}

// drain waits until the output of all workers is where it belongs, and gives up what the console does not take: a job that has
// succeeded waits for its reader until somebody tells it to stop. err is what the run ends with.
func (a *Agent) drain(ctx context.Context, succeeded bool, err error) {
	if a.unread == nil {
		return
	}
	bounded, cancel := drainContext(ctx, succeeded, err)
	defer cancel()
	a.drained(a.unread.Drain(bounded))
	a.unread = nil
}

// drainContext ends when what is unread is to be given up.
func drainContext(ctx context.Context, succeeded bool, err error) (context.Context, context.CancelFunc) {
	switch {
	case errors.As(err, new(*procs.StuckError)):
		return context.WithTimeout(context.WithoutCancel(ctx), partingBound)
	case succeeded:
		return withGrace(ctx, drainBound)
	}
	patient, end := context.WithTimeout(ctx, drainPatience)
	bounded, cancel := withGrace(patient, drainBound)
	return bounded, func() {
		cancel()
		end()
	}
}

func (a *Agent) drained(err error) {
	if err != nil {
		a.log.Warn().Err(err).Msg("output of workers is incomplete")
	}
}
