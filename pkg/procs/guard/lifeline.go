package guard

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Role is what a process of this program is to the job.
type Role string

// The parts. The process that the user starts has none yet.
const (
	RoleNone  Role = ""
	RoleGuard Role = "guard" // starts the agent and cleans up after it
	RoleAgent Role = "agent" // runs the job
)

// lifelineVar is the environment variable with which a guard tells its child
// PART:GUARDPID:FD:TIMERFD.
const lifelineVar = "ELASTICRUN_LIFELINE"

func lifelineEnv(role Role, fd, timer int) string {
	return fmt.Sprintf("%s=%s:%d:%d:%d", lifelineVar, role, os.Getpid(), fd, timer)
}

// A lifeline carries packets, whose first byte says what they are. These go to the guard:
const (
	packetEnding = 1 // with the exit code, which is to be taken at its word, in the next byte
	packetStuck  = 2 // processes that outlive SIGKILL have been reported
	packetNotice = 3 // with an exit notice; empty withdraws it
)

// maxExitNotice is the size of the longest exit notice in bytes.
const maxExitNotice = 32 << 10

// packetFired is all that a guard ever sends: the deadline has passed.
const packetFired = 1

// Lifeline connects a process to the guard that started it. A nil lifeline is that
// of a process without a guard: its methods do nothing. They may be used concurrently.
type Lifeline struct {
	link   *os.File
	broken chan struct{}
	fired  chan struct{}
	limit  deadline
}

// Started reports whether a guard started this process, before [OpenLifeline].
func Started() bool {
	_, set := os.LookupEnv(lifelineVar)
	return set
}

// OpenLifeline tells which role this process plays and opens its lifeline; the
// lifeline of [RoleNone] is nil. The mark is taken out of the environment, so no
// child inherits it. An error means that the guard died before this process got
// so far: it must end without starting anything.
func OpenLifeline() (Role, *Lifeline, error) {
	mark, set := os.LookupEnv(lifelineVar)
	if !set {
		return RoleNone, nil, nil
	}
	if err := os.Unsetenv(lifelineVar); err != nil {
		return RoleNone, nil, err
	}
	f := strings.Split(mark, ":")
	if len(f) != 4 {
		return RoleNone, nil, fmt.Errorf("environment variable %s=%q is not one that elasticrun set; unset it", lifelineVar, mark)
	}
	fd, err1 := strconv.Atoi(f[2])
	timer, err2 := strconv.Atoi(f[3])
	if err1 != nil || err2 != nil || f[1] != strconv.Itoa(os.Getppid()) {
		return RoleNone, nil, fmt.Errorf("the guard, pid %s, is gone", f[1])
	}
	syscall.CloseOnExec(fd)
	syscall.CloseOnExec(timer)
	if err := syscall.SetNonblock(fd, true); err != nil {
		return RoleNone, nil, fmt.Errorf("open the lifeline: %w", err)
	}
	l := &Lifeline{
		link:   os.NewFile(uintptr(fd), "lifeline"),
		broken: make(chan struct{}),
		fired:  make(chan struct{}, 1),
	}
	l.limit.open(timer)
	go l.watch()
	return Role(f[0]), l, nil
}

// watch ends when the guard does, or when the process closes the lifeline.
func (l *Lifeline) watch() {
	defer close(l.broken)
	for {
		var b [1]byte
		if _, err := l.link.Read(b[:]); err != nil {
			return
		}
		if b[0] == packetFired {
			l.limit.answered()
			select {
			case l.fired <- struct{}{}:
			default: // nobody has taken the last one yet
			}
		}
	}
}

// Broken is closed when the guard has died; nil lifelines never break.
func (l *Lifeline) Broken() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.broken
}

// AnnounceExit tells the guard that the process ends now, on purpose, so that its exit
// code is to be taken at its word. A process that crashes does not come so far. One that hangs
// in the kernel, of which a thread writes to a dead file server, say, does not end even so; then the guard ends
// with this code in its place.
func (l *Lifeline) AnnounceExit(code int) {
	if l != nil {
		_, _ = l.link.Write([]byte{packetEnding, byte(code)})
	}
}

// ReportStuck tells the guard that what outlives SIGKILL has been reported: the guard has not to wait for it as long again.
func (l *Lifeline) ReportStuck() {
	if l != nil {
		_, _ = l.link.Write([]byte{packetStuck})
	}
}

// AwaitGuard returns once workers may be started again: at once, unless a [Lifeline.SetDeadline] has passed and the guard, which may be stopped
// itself, has not acted on it. Then waiting is called, which may be nil, and AwaitGuard waits until the guard has. No worker may be left. When ctx
// ends first it returns its cause.
func (l *Lifeline) AwaitGuard(ctx context.Context, waiting func()) error {
	for {
		l.SetDeadline(0)
		if !l.DeadlinePassed() {
			return nil
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-l.fired:
		case <-l.broken:
			return nil // and so is this process about to end
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends the watching and waits for it.
func (l *Lifeline) Close() {
	if l == nil {
		return
	}
	_ = l.link.Close()
	<-l.broken
	l.limit.close()
}
