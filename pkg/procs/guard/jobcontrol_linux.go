package guard

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// jobControl suspends the job when SIGTSTP comes (Ctrl-Z). It asks the child to stop the processes of the job, waits
// for the confirmation, and stops this process, which is what the shell waits for. The child goes on. When SIGCONT
// continues this process (fg, bg), jobControl tells the child to continue the job.
//
// So nothing of the job runs while the guard cannot enforce the deadline. If the child dies meanwhile, the kernel
// continues this process; see [deathPipe].
//
// A guard below another one only passes the requests of the guard above on to its child. It does not stop itself.
type jobControl struct {
	child   *child
	kill    *deadlineKiller
	opts    *Options
	notices *notices
	signals chan os.Signal

	id       byte            // of the last request to the child
	waiting  bool            // the child has not confirmed yet
	above    *SuspendRequest // the request of the guard above; nil: the request is a SIGTSTP
	resuming bool            // continue once the workers have been killed, because the deadline has passed
}

// noticePause is how long jobControl waits for a console that blocks before it stops this process. It also bounds the
// wait for the SIGCONT that has continued this process.
const noticePause = 100 * time.Millisecond

// newJobControl starts to receive signals. Its child is set before the methods are called.
func newJobControl(kill *deadlineKiller, opts *Options, n *notices) *jobControl {
	j := &jobControl{kill: kill, opts: opts, notices: n, signals: make(chan os.Signal, 8)}
	signal.Notify(j.signals, syscall.SIGCONT)
	if !isIgnored(syscall.SIGTSTP) {
		signal.Notify(j.signals, syscall.SIGTSTP)
	}
	return j
}

func (j *jobControl) close() { signal.Stop(j.signals) }

// signaled acts on SIGTSTP and SIGCONT.
//
// The Go runtime delivers signals that arrive together by number, so a SIGTSTP that follows a SIGCONT may have been
// sent before it. signaled drops it: the user can press Ctrl-Z again.
func (j *jobControl) signaled(sig os.Signal) {
	switch {
	case sig == syscall.SIGCONT:
		j.dropSignals()
		if j.above == nil {
			j.cancel()
		}
	case !j.waiting && !isOrphaned():
		j.above = nil
		j.suspend()
	}
}

// requested acts on a request of the guard above.
func (j *jobControl) requested(r SuspendRequest) {
	if r.Suspend {
		j.above = &r
		j.suspend()
		return
	}
	j.waiting = false
	j.resume()
}

// suspend asks the child to stop the job. A child that does not answer cannot have stopped it, so nothing else happens
// before it does.
func (j *jobControl) suspend() {
	j.id++
	j.waiting = true
	j.child.link.sendSuspend(j.id)
}

// cancel gives up a suspension that was not confirmed.
func (j *jobControl) cancel() {
	if j.waiting {
		j.waiting = false
		j.child.link.sendContinue()
	}
}

// confirmed passes a confirmation on to the guard above. Otherwise it stops this process, and returns after SIGCONT.
func (j *jobControl) confirmed(c confirmation) {
	if !j.waiting || c.id != j.id {
		return // it was canceled
	}
	if j.above != nil {
		j.waiting = false
		j.opts.Lifeline.ConfirmSuspended(*j.above, c.workers)
		return
	}
	j.notify(func() { j.opts.OnSuspend(c.workers) }, j.opts.OnSuspend != nil)
	if j.dropSignals() || j.child.death.isBroken() {
		j.cancel()
	} else {
		stopSelf()
		j.awaitContinue()
		j.waiting = false
		j.resume()
	}
	// If the child has ended, its last line must stay the last.
	j.notify(j.opts.OnContinue, j.opts.OnContinue != nil && !j.child.death.isBroken())
}

// resume tells the child to continue the job. If the deadline has passed, the workers must be killed before.
func (j *jobControl) resume() {
	if _, missed := j.child.timer.passed(); missed && !j.kill.active() {
		j.resuming = true
		return
	}
	j.child.link.sendContinue()
}

// killed continues the job, which was not done because the deadline had passed. The workers have been killed.
func (j *jobControl) killed() {
	if j.resuming {
		j.resuming = false
		j.child.link.sendContinue()
	}
}

// dropSignals drops the signals that this process has received and not acted on. It reports whether a SIGCONT was among
// them.
func (j *jobControl) dropSignals() (continued bool) {
	flush := make(chan os.Signal, 1)
	signal.Notify(flush, syscall.SIGCONT)
	signal.Stop(flush) // returns when the runtime has delivered what it had received
	for {
		select {
		case sig := <-j.signals:
			continued = continued || sig == syscall.SIGCONT
		default:
			return continued
		}
	}
}

// awaitContinue receives the SIGCONT that has continued this process. A SIGTSTP after it counts.
func (j *jobControl) awaitContinue() {
	for timeout := time.After(noticePause); ; {
		select {
		case sig := <-j.signals:
			if sig == syscall.SIGCONT {
				return
			}
		case <-timeout:
			return
		}
	}
}

// notify calls call, and returns before it has returned if the console blocks.
func (j *jobControl) notify(call func(), wanted bool) {
	if !wanted {
		return
	}
	done := make(chan struct{})
	j.notices.add(func() {
		defer close(done)
		call()
	})
	select {
	case <-done:
	case <-time.After(noticePause):
	}
}

// stopSelf stops this process and returns when it has been continued.
func stopSelf() {
	runtime.LockOSThread() // a signal to the calling thread has its effect before the system call returns
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// isOrphaned reports whether no shell would continue this process's group if it stopped: no ancestor is in another
// group of the same session. The kernel then ignores a SIGTSTP that has no handler, and so does jobControl.
func isOrphaned() bool {
	group, session := unix.Getpgrp(), ownSession()
	for pid := os.Getppid(); ; {
		theirs, err := unix.Getsid(pid)
		if pid == 0 || err != nil || theirs != session {
			return true
		}
		if pgid, err := unix.Getpgid(pid); err != nil || pgid != group {
			return err != nil
		}
		if !proctree.ProcIsOurs() {
			return true
		}
		p, ok := proctree.Read(pid)
		if !ok {
			return true
		}
		pid = p.PPID
	}
}

func ownSession() int {
	session, _ := unix.Getsid(0) // it cannot fail
	return session
}

// isIgnored reports whether this process has inherited an ignored sig. The Go runtime does not report that for signals
// of job control.
func isIgnored(sig syscall.Signal) bool { return proctree.SignalSet(os.Getpid(), "SigIgn:", sig) }
