package agent

import (
	"context"
	"errors"
	"time"
)

// Devices tells who holds the devices of this machine.
type Devices interface {
	// InUse names those of pids that use a device. An error says that this cannot be found out.
	InUse(ctx context.Context, pids map[int]bool) ([]string, error)
}

const (
	// devicesBound is how long a restart waits for devices.
	devicesBound = 30 * time.Second
	// devicesPause is the time between two looks. A driver tells nobody when it has let go.
	devicesPause = 250 * time.Millisecond
)

// deviceWait is a wait for the devices of a group that was stopped. The processes are dead, which the stop has proved; but a
// driver may be slow to take back what they held, and the next workers would find it taken.
type deviceWait struct {
	cancel context.CancelFunc
	over   chan struct{} // closed when the devices are free, or nobody waits for them any more
	failed error         // why there is no telling, once over is closed
}

// freeDevices begins to wait for what the processes given held, while the next round is being formed. End it.
func (a *Agent) freeDevices(ctx context.Context, pids map[int]bool) *deviceWait {
	w := &deviceWait{over: make(chan struct{})}
	if a.opts.Devices == nil || a.deviceless {
		w.cancel = func() {}
		close(w.over)
		return w
	}
	ctx, w.cancel = context.WithTimeout(ctx, devicesBound)
	go func() {
		defer close(w.over)
		w.failed = a.pollDevices(ctx, pids)
	}()
	return w
}

// end gives the wait up, unless it is over, and waits for its goroutine. Devices that cannot be asked are not
// asked again.
func (a *Agent) endDeviceWait(w *deviceWait) {
	w.cancel()
	<-w.over
	if w.failed != nil {
		a.deviceless = true
		a.log.Warn().Err(w.failed).Msg("whether the GPUs are free again is not known: restarts do not wait for it")
	}
}

// pollDevices returns when the devices are free, or ctx ends.
func (a *Agent) pollDevices(ctx context.Context, pids map[int]bool) error {
	again := time.NewTicker(devicesPause)
	defer again.Stop()
	var using []string
	for {
		now, err := a.opts.Devices.InUse(ctx, pids)
		switch {
		case ctx.Err() != nil: // which the error is about
		case err != nil:
			return err
		case len(now) == 0:
			return nil
		default:
			using = now
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				a.log.Warn().Strs("processes", using).Stringer("waited", devicesBound).
					Msg("GPUs are still in use by processes that have ended: starting the workers all the same")
			}
			return nil
		}
	}
}

// awaitDevices holds up the start of a round until the devices are free.
func (a *Agent) awaitDevices(ctx context.Context) error {
	if a.devices == nil { // the first start
		return nil
	}
	return a.holdStart(ctx, a.devices.over)
}

// holdStart holds up the start of a round until over is closed. A Stop of the round, which sets a.halt, ends that: then
// nothing is to be started.
func (a *Agent) holdStart(ctx context.Context, over <-chan struct{}) error {
	for {
		select {
		case <-over:
			return nil
		case stop := <-a.opts.Rendezvous.Stops():
			if stop.Round == a.round.Number {
				a.halted(stop)
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
