package agent

import (
	"context"
	"errors"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
)

const (
	// devicesTimeout is how long a restart waits for devices.
	devicesTimeout = 30 * time.Second
	// devicesInterval is the time between two polls. A driver does not notify anybody when it has released a device.
	devicesInterval = 250 * time.Millisecond
)

// deviceWait is a wait for the devices of a group that was stopped. The processes are dead, but a driver may be slow to
// release their devices, and the next workers would find those in use.
type deviceWait struct {
	cancel context.CancelFunc
	over   chan struct{} // closed when the devices are free or the wait was given up
	err    error         // why the state of the devices is not known; valid after over is closed
}

// freeDevices begins to wait for the devices that the processes held, while the next round is formed. Call
// endDeviceWait.
func (a *Agent) freeDevices(ctx context.Context, pids map[int]bool) *deviceWait {
	w := &deviceWait{over: make(chan struct{})}
	if a.opts.Devices == nil || a.deviceless {
		w.cancel = func() {}
		close(w.over)
		return w
	}
	ctx, w.cancel = context.WithTimeout(ctx, devicesTimeout)
	go func() {
		defer close(w.over)
		w.err = a.pollDevices(ctx, pids)
	}()
	return w
}

// endDeviceWait ends the wait and its goroutine. After an error, no later restart waits for devices.
func (a *Agent) endDeviceWait(w *deviceWait) {
	w.cancel()
	<-w.over
	if w.err != nil {
		a.deviceless = true
		a.log.Warn().Err(w.err).Msg("cannot find out whether the GPUs are free again: restarts do not wait for it")
	}
}

// pollDevices returns when the devices are free or ctx ends.
func (a *Agent) pollDevices(ctx context.Context, pids map[int]bool) error {
	ticker := time.NewTicker(devicesInterval)
	defer ticker.Stop()
	var using []string
	for {
		now, err := a.opts.Devices.InUse(ctx, pids)
		switch {
		case ctx.Err() != nil: // the error follows from it
		case err != nil:
			return err
		case len(now) == 0:
			return nil
		default:
			using = now
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				a.log.Warn().Strs("processes", using).Str("waited", seconds.Format(devicesTimeout)).
					Msg("GPUs are still in use by processes that have ended: starting the workers anyway")
			}
			return nil
		}
	}
}

// awaitDevices delays the start of a round until the devices are free.
func (a *Agent) awaitDevices(ctx context.Context) error {
	if a.devices == nil { // the first start
		return nil
	}
	return a.delayStart(ctx, a.devices.over)
}

// delayStart delays the start of a round until over is closed. A Stop of the round sets a.halt and ends the delay: then
// nothing must be started.
func (a *Agent) delayStart(ctx context.Context, over <-chan struct{}) error {
	for {
		select {
		case <-over:
			return nil
		case stop := <-a.opts.Rendezvous.Stops():
			if stop.Round == a.round.Number {
				a.setHalt(stop)
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
