package guard

import (
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// The dead man's switch is one timer that guard and agent share: the agent sets it, and
// the guard waits for it. So a renewal costs the guard nothing, and one that it
// could not look at yet (it was stopped from its terminal, say) counts all the same.
// The clock is CLOCK_BOOTTIME: it goes on while the machine is suspended.

// once makes the timer fire once only: it is what is added to the timer's period. So the period
// tells what was armed, and a time left of more than half of it that the deadline passed.
const once = (1 << 30) * time.Second // 34 years

// passed reports whether the deadline of a timer has passed, and how long it had been.
func passed(t unix.ItimerSpec) (after time.Duration, yes bool) {
	return (time.Duration(t.Interval.Nano()) - once).Round(time.Millisecond), time.Duration(t.Value.Nano()) > once/2
}

// deadline is the agent's side of the timer.
type deadline struct {
	mu     sync.Mutex
	fd     int
	armed  bool // and the guard has not said that it fired
	disarm bool // it is to be disarmed once the guard has said so
}

func (d *deadline) open(fd int) { d.fd = fd }

// SetDeadline tells the guard: unless another call comes before at, a time of package boottime, kill the workers. So
// they are dead soon after even if this process is stopped, hangs or is not given the CPU.
// 0 disarms; what lies in the past has passed already. The guard tells it by [Lifeline.Fired].
//
// A deadline that has passed stays so: calls are not heard until Fired was told. After that one
// call is needed before workers are started again: until then the guard may still be killing
// what it finds.
func (l *Lifeline) SetDeadline(at time.Duration) {
	if l != nil {
		l.limit.set(at)
	}
}

func (d *deadline) set(at time.Duration) {
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
	if at != 0 { // the time itself, not what is left until then: this process may be stopped before the call
		spec.Value = unix.NsecToTimespec(int64(max(at, 1)))
		spec.Interval = unix.NsecToTimespec(int64(once + min(max(at-boottime.Now(), 0), once/4)))
	}
	_ = unix.TimerfdSettime(d.fd, unix.TFD_TIMER_ABSTIME, &spec, &old) // the arguments are valid
	if _, late := passed(old); late && d.armed {
		// It passed between the two calls, and the guard may not have seen that.
		old.Value = unix.NsecToTimespec(1)
		_ = unix.TimerfdSettime(d.fd, 0, &old, nil)
		d.disarm = at == 0
		return
	}
	d.armed = at != 0
}

// DeadlinePassed reports whether the time that [Lifeline.SetDeadline] has set is over: the guard kills the workers, or will once it
// runs again. A process that was stopped asks it before it starts a worker.
func (l *Lifeline) DeadlinePassed() bool {
	if l == nil {
		return false
	}
	l.limit.mu.Lock()
	defer l.limit.mu.Unlock()
	var now unix.ItimerSpec
	if unix.TimerfdGettime(l.limit.fd, &now) != nil {
		return false
	}
	_, over := passed(now)
	return over
}

// answered says that the guard has told that it fired.
func (d *deadline) answered() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = false
	if d.disarm {
		d.disarm = false
		_ = unix.TimerfdSettime(d.fd, 0, &unix.ItimerSpec{}, nil)
	}
}

func (d *deadline) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = unix.Close(d.fd)
	d.fd = -1
}

// guardTimer is the guard's side of the timer.
type guardTimer struct {
	fd      int // the file's; File.Fd would make it block
	file    *os.File
	expired chan struct{} // receives when the deadline has passed
	done    chan struct{}
}

func newGuardTimer() (*guardTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	t := &guardTimer{fd: fd, file: os.NewFile(uintptr(fd), "timer"), expired: make(chan struct{}, 1), done: make(chan struct{})}
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

// passed reports whether the deadline passed and nothing was heard since.
func (t *guardTimer) passed() (after time.Duration, yes bool) {
	var now unix.ItimerSpec
	_ = unix.TimerfdGettime(t.fd, &now) // the arguments are valid
	return passed(now)
}

func (t *guardTimer) close() {
	_ = t.file.Close()
	<-t.done
}

// maxKillPause bounds the pause between two looks for workers that do not die.
const maxKillPause = time.Second

// killing ends the workers of an agent that missed its deadline. The agent may be
// stopped, so what is dead stays a zombie, and ECHILD cannot be the proof that nothing is left.
// The zero value does nothing.
type killing struct {
	child *guarded         // the agent
	again <-chan time.Time // when to look again; nil once the agent was heard of
	pause time.Duration
}

// begin tells the agent, kills, and returns how many processes it found alive. It looks before
// it tells: an agent that was told may start workers anew. Where /proc does not show the workers, the agent is killed,
// which ends them as well.
func (k *killing) begin(child *guarded) int {
	*k = killing{child: child, pause: proctree.KillInterval}
	if !proctree.ProcIsOurs() {
		child.signal(syscall.SIGKILL)
		return 1
	}
	left := k.look()
	child.link.fired()
	k.kill(left)
	return len(left)
}

// goOn kills what is found now, unless the agent was heard of again: then the workers are its
// business, and there may be new ones. That is asked after the look, so none of those is in it. It goes on until then: an agent
// that was stopped in the middle of a start may fork once more when it runs again.
func (k *killing) goOn() {
	left := k.look()
	k.again = nil
	if _, unheard := k.child.timer.passed(); unheard {
		k.kill(left)
	}
}

// look finds every live descendant but the agent. One look may miss a process whose parent is reaped meanwhile.
func (k *killing) look() []proctree.Process {
	all, _ := proctree.All() // the next look tries again
	left := proctree.Descendants(os.Getpid(), all, func(proctree.Process) bool { return true })
	return slices.DeleteFunc(left, func(p proctree.Process) bool { return p.PID == k.child.pid || p.Dead() })
}

// kill sends SIGKILL, and has the next look made soon if there was something to kill.
func (k *killing) kill(left []proctree.Process) {
	for _, p := range left {
		p.Signal(syscall.SIGKILL)
	}
	if len(left) > 0 {
		k.pause = proctree.KillInterval
	}
	k.again = time.After(k.pause)
	k.pause = min(2*k.pause, maxKillPause)
}
