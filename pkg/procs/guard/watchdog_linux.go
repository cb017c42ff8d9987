package guard

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/boottime"
)

// The watchdog is one timer that guard and agent share: the agent sets it, and the guard waits for it. So a renewal
// costs the guard nothing. A renewal also counts if the guard could not see it yet, for example because it was
// stopped from its terminal. The clock is CLOCK_BOOTTIME, which advances while the machine is suspended.

// oneShot makes the timer fire only once. The timer's period is oneShot plus the time that was set. So the period
// reveals the time that was set, and a remaining time of more than half of oneShot means that the deadline has passed.
const oneShot = (1 << 30) * time.Second // 34 years

// passed reports whether the deadline of a timer has passed, and the time that had been set.
func passed(t unix.ItimerSpec) (after time.Duration, yes bool) {
	return (time.Duration(t.Interval.Nano()) - oneShot).Round(time.Millisecond), time.Duration(t.Value.Nano()) > oneShot/2
}

// watchdog is the agent's side of the timer.
type watchdog struct {
	mu     sync.Mutex
	fd     int
	armed  bool // set, and the guard has not acknowledged that it passed
	disarm bool // disarm it once the guard has acknowledged
}

func (d *watchdog) open(fd int) { d.fd = fd }

// SetDeadline tells the guard to kill the workers at the time at, on the clock of package boottime, unless another
// call comes before. So the workers die soon after at, even if this process is stopped, hangs or gets no CPU time. 0
// clears the deadline. A time in the past has passed at once.
//
// A deadline that has passed stays passed: calls have no effect until the guard has acted on it; see
// [Lifeline.AwaitGuard]. After that, call SetDeadline once before workers are started again, because until then the
// guard may still kill what it finds.
func (l *Lifeline) SetDeadline(at time.Duration) {
	if l != nil {
		l.watchdog.set(at)
	}
}

func (d *watchdog) set(at time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var spec, old unix.ItimerSpec
	if d.fd < 0 || unix.TimerfdGettime(d.fd, &old) != nil {
		return
	}
	if _, late := passed(old); late && d.armed {
		d.disarm = at == 0
		return
	}
	if at != 0 { // an absolute time, because this process may be stopped just before the call
		spec.Value = unix.NsecToTimespec(int64(max(at, 1)))
		spec.Interval = unix.NsecToTimespec(int64(oneShot + min(max(at-boottime.Now(), 0), oneShot/4)))
	}
	_ = unix.TimerfdSettime(d.fd, unix.TFD_TIMER_ABSTIME, &spec, &old) // the arguments are valid
	if _, late := passed(old); late && d.armed {
		// The deadline passed between the two calls, and the guard may not have seen it.
		old.Value = unix.NsecToTimespec(1)
		_ = unix.TimerfdSettime(d.fd, 0, &old, nil)
		d.disarm = at == 0
		return
	}
	d.armed = at != 0
}

// DeadlinePassed reports whether the time of [Lifeline.SetDeadline] is over: the guard kills the workers now, or as
// soon as it runs again. A process that was stopped (SIGSTOP) asks before it starts a worker.
func (l *Lifeline) DeadlinePassed() bool {
	if l == nil {
		return false
	}
	l.watchdog.mu.Lock()
	defer l.watchdog.mu.Unlock()
	var now unix.ItimerSpec
	if unix.TimerfdGettime(l.watchdog.fd, &now) != nil {
		return false
	}
	_, over := passed(now)
	return over
}

// acknowledged records that the guard has acted on the deadline.
func (d *watchdog) acknowledged() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = false
	if d.disarm {
		d.disarm = false
		_ = unix.TimerfdSettime(d.fd, 0, &unix.ItimerSpec{}, nil)
	}
}

func (d *watchdog) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = unix.Close(d.fd)
	d.fd = -1
}

// guardTimer is the guard's side of the timer.
type guardTimer struct {
	fd      int // of file; File.Fd would make it blocking
	file    *os.File
	expired chan struct{} // receives when the deadline passes
	done    chan struct{}
}

func newGuardTimer() (*guardTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	t := &guardTimer{
		fd: fd, file: os.NewFile(uintptr(fd), "timer"), expired: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go t.wait()
	return t, nil
}

func (t *guardTimer) wait() {
	defer close(t.done)
	for {
		var times [8]byte
		if _, err := t.file.Read(times[:]); err != nil {
			return
		}
		select {
		case t.expired <- struct{}{}:
		default:
		}
	}
}

// passed reports whether the deadline has passed and was not set again since, and the time that had been set.
func (t *guardTimer) passed() (after time.Duration, yes bool) {
	var now unix.ItimerSpec
	_ = unix.TimerfdGettime(t.fd, &now) // the arguments are valid
	return passed(now)
}

func (t *guardTimer) close() {
	_ = t.file.Close()
	<-t.done
}
