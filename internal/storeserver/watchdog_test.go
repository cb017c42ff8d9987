package storeserver

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A stuck store does not feed the watchdog, and feeds it again when it replies.
func TestWatchdogIsFedByAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		h := newHealth(func() counts {
			<-stuck
			return counts{}
		}, nil)
		var fed atomic.Int32
		stop := feedWatchdog(3*time.Second, h, func() { fed.Add(1) })
		<-time.After(time.Minute)
		synctest.Wait()
		if fed.Load() > 0 {
			t.Errorf("a stuck store fed the watchdog %d times", fed.Load())
		}
		close(stuck)
		synctest.Wait()
		fed.Store(0)
		<-time.After(30 * time.Second)
		synctest.Wait()
		if n := fed.Load(); n < 29 || n > 31 {
			t.Errorf("a store that answers fed the watchdog %d times in 10 timeouts", n)
		}
		stop()
	})
}

func TestNoWatchdog(t *testing.T) {
	feedWatchdog(0, nil, func() { t.Error("nobody watches") })()
}
