package storeserver

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/sdnotify"
)

// announce notifies the manager that the store is ready, and feeds its watchdog until stop is called.
func announce(manager *sdnotify.Manager, h *health, ready string, log zerolog.Logger) (stop func()) {
	notify(manager, log, sdnotify.Ready, "STATUS="+ready)
	return feedWatchdog(manager.WatchdogTimeout(), h, func() { notify(manager, log, sdnotify.Alive) })
}

// feedWatchdog calls alive up to three times in each timeout, whenever the store has answered the request of a health
// check. A store that is stuck does not answer, so the service manager restarts it. A timeout of 0 means that there is
// no watchdog. stop ends the calls and waits for the last one.
func feedWatchdog(timeout time.Duration, h *health, alive func()) (stop func()) {
	if timeout == 0 {
		return func() {}
	}
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(timeout / 3) // a late answer costs one of three
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
			}
			if _, answered := h.ask(); answered {
				alive()
			}
		}
	})
	return func() {
		close(quit)
		done.Wait()
		h.asking <- struct{}{} // until the store has answered the last request
		<-h.asking
	}
}

// notify sends states to the manager. The store works without a manager, so a failure is only logged.
func notify(manager *sdnotify.Manager, log zerolog.Logger, states ...string) {
	if err := manager.Notify(states...); err != nil {
		log.Warn().Err(err).Msg("the service manager was not notified")
	}
}
