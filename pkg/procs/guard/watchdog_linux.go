package guard

import (
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/siginfo"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
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

// maxKillPause is the longest pause between two scans for workers that do not die.
const maxKillPause = time.Second

// workerKiller kills the workers of an agent that missed its deadline. The agent may be stopped, so dead workers stay
// zombies, and ECHILD cannot prove that nothing is left. The zero value does nothing.
type workerKiller struct {
	child *child           // the agent
	again <-chan time.Time // when to scan again; nil once the agent has set its deadline again
	pause time.Duration
}

// begin kills the workers, notifies the agent, and returns how many live processes it found. It scans before it
// notifies, because an agent that was notified may start new workers. If /proc does not show the workers, begin kills
// the agent, which ends them as well.
func (k *workerKiller) begin(c *child) int {
	*k = workerKiller{child: c, pause: proctree.KillInterval}
	if !proctree.ProcIsOurs() {
		c.signal(syscall.SIGKILL, siginfo.Origin{})
		return 1
	}
	left := k.scan()
	c.link.notifyKilled()
	k.kill(left)
	return len(left)
}

// active reports whether begin has killed the workers of a deadline that the agent has not set again.
func (k *workerKiller) active() bool { return k.again != nil }

// repeat kills the processes that it finds now, unless the agent has set its deadline again: then the workers are the
// agent's, and there may be new ones. It checks that after the scan, so the scan has none of the new ones. It repeats
// until then, because an agent that was stopped in the middle of a start may fork once more when it continues.
func (k *workerKiller) repeat() {
	left := k.scan()
	k.again = nil
	if _, missed := k.child.timer.passed(); missed {
		k.kill(left)
	}
}

// scan finds every live descendant except the agent. One scan may miss a process whose parent is reaped meanwhile.
func (k *workerKiller) scan() []proctree.Process {
	all, _ := proctree.All() // the next scan tries again
	left := proctree.Descendants(os.Getpid(), all, func(proctree.Process) bool { return true })
	return slices.DeleteFunc(left, func(p proctree.Process) bool { return p.PID == k.child.pid || p.Dead() })
}

// kill sends SIGKILL to left. If left has processes, the next scan comes soon.
func (k *workerKiller) kill(left []proctree.Process) {
	for _, p := range left {
		p.Signal(syscall.SIGKILL)
	}
	if len(left) > 0 {
		k.pause = proctree.KillInterval
	}
	k.again = time.After(k.pause)
	k.pause = min(2*k.pause, maxKillPause)
}
