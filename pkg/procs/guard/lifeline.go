package guard

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Role is what a process of this program does for the job.
type Role string

// The roles. The process that the user starts has none yet.
const (
	RoleNone  Role = ""
	RoleGuard Role = "guard" // starts the agent and cleans up after it
	RoleAgent Role = "agent" // runs the job
)

// lifelineVar is the environment variable in which a guard passes ROLE:GUARDPID:FD:TIMERFD:DEATHFD:RECORDFD to
// its child.
const lifelineVar = "ELASTICRUN_LIFELINE"

func lifelineEnv(role Role, fd, timer, death, record int) string {
	return fmt.Sprintf("%s=%s:%d:%d:%d:%d:%d", lifelineVar, role, os.Getpid(), fd, timer, death, record)
}

// A lifeline carries packets. The first byte of a packet is its kind. The child sends these kinds:
const (
	packetExit   = 1 // the child exits on purpose; the next byte is its exit code
	packetStuck  = 2 // the child has reported processes that survive SIGKILL
	packetNotice = 3 // an exit notice follows; an empty one withdraws the last
	// The job is suspended. The request's number and the number of workers follow, one byte and two.
	packetSuspended = 4
)

// maxExitNotice is the most bytes that an exit notice may have.
const maxExitNotice = 32 << 10

// MaxRecord is the most bytes that a record may have; see [Lifeline.SetRecord].
const MaxRecord = 200

// A guard sends these kinds:
const (
	packetKilled   = 1 // the deadline has passed
	packetSuspend  = 2 // suspend the job; the request's number follows, one byte
	packetContinue = 3 // continue the job
	// Ctrl-\ was typed: show the workers' stacks.
	packetShowStacks = 4
)

// Lifeline connects a process to the guard that started it. The methods of a nil Lifeline do nothing; a process
// without a guard has one. They may be called concurrently.
type Lifeline struct {
	link     *os.File
	broken   chan struct{}
	killed   chan struct{}
	suspends chan SuspendRequest
	stacks   chan struct{}
	watchdog watchdog
	death    int // the write end of the guard's deathPipe; it closes when this process ends
	record   int // see SetRecord; -1 for none
}

// SuspendRequest is an order of the guard. It comes when the user suspends the launcher (Ctrl-Z), and when the launcher
// continues (fg, bg).
type SuspendRequest struct {
	// Suspend says to stop every process of the job; then call [Lifeline.ConfirmSuspended]. False says to continue them.
	Suspend bool

	id byte
}

// Started reports whether a guard started this process. Call it before [OpenLifeline].
func Started() bool {
	_, set := os.LookupEnv(lifelineVar)
	return set
}

// OpenLifeline returns the role of this process and opens its lifeline, which is nil for [RoleNone]. It removes the
// lifeline's variable from the environment, so that no child inherits it. An error means that the guard has already
// died: the process must exit without starting anything.
func OpenLifeline() (Role, *Lifeline, error) {
	value, set := os.LookupEnv(lifelineVar)
	if !set {
		return RoleNone, nil, nil
	}
	if err := os.Unsetenv(lifelineVar); err != nil {
		return RoleNone, nil, err
	}
	f := strings.Split(value, ":")
	if len(f) != 6 {
		return RoleNone, nil, fmt.Errorf("environment variable %s=%q was not set by elasticrun; unset it", lifelineVar, value)
	}
	fd, err1 := strconv.Atoi(f[2])
	timer, err2 := strconv.Atoi(f[3])
	death, err3 := strconv.Atoi(f[4])
	record, err4 := strconv.Atoi(f[5])
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || f[1] != strconv.Itoa(os.Getppid()) {
		return RoleNone, nil, fmt.Errorf("the guard (pid %s) has exited", f[1])
	}
	syscall.CloseOnExec(fd)
	syscall.CloseOnExec(timer)
	syscall.CloseOnExec(death)
	if record >= 0 {
		syscall.CloseOnExec(record)
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		return RoleNone, nil, fmt.Errorf("open the lifeline: %w", err)
	}
	l := &Lifeline{
		link:     os.NewFile(uintptr(fd), "lifeline"),
		broken:   make(chan struct{}),
		killed:   make(chan struct{}, 1),
		suspends: make(chan SuspendRequest, 1),
		stacks:   make(chan struct{}, 1),
		death:    death,
		record:   record,
	}
	l.watchdog.open(timer)
	go l.watch()
	return Role(f[0]), l, nil
}

// watch returns when the guard exits or this process closes the lifeline.
func (l *Lifeline) watch() {
	defer close(l.broken)
	for {
		var b [2]byte
		if _, err := l.link.Read(b[:]); err != nil {
			return
		}
		switch b[0] {
		case packetSuspend, packetContinue:
			select {
			case <-l.suspends: // a later request replaces it
			default:
			}
			l.suspends <- SuspendRequest{Suspend: b[0] == packetSuspend, id: b[1]}
		case packetShowStacks:
			select {
			case l.stacks <- struct{}{}:
			default: // the previous one has not been received yet
			}
		case packetKilled:
			l.watchdog.acknowledged()
			select {
			case l.killed <- struct{}{}:
			default: // the previous one has not been received yet
			}
		}
	}
}

// Broken returns a channel that is closed when the guard has died. It is nil, so never closed, for a nil Lifeline.
func (l *Lifeline) Broken() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.broken
}

// SuspendRequests returns a channel with the last [SuspendRequest] that was not received yet. It is nil for a nil
// Lifeline.
func (l *Lifeline) SuspendRequests() <-chan SuspendRequest {
	if l == nil {
		return nil
	}
	return l.suspends
}

// StackRequests returns a channel that receives when Ctrl-\ was typed. It is nil for a nil Lifeline.
func (l *Lifeline) StackRequests() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.stacks
}

// AnnounceExit tells the guard that the process exits now, on purpose, with this code. If a process ends without an
// announcement, the guard treats it as crashed, whatever its exit code. A process may announce its exit and still not
// vanish, for example because a thread of it writes to a dead file server. Then the guard exits with code in its place.
func (l *Lifeline) AnnounceExit(code int) {
	if l != nil {
		_, _ = l.link.Write([]byte{packetExit, byte(code)})
	}
}

// ReportStuck tells the guard that processes which survive SIGKILL have been reported, so that it waits for them only
// briefly.
func (l *Lifeline) ReportStuck() {
	if l != nil {
		_, _ = l.link.Write([]byte{packetStuck})
	}
}

// AwaitGuard clears the deadline and returns once workers may be started again. It returns at once, unless a
// [Lifeline.SetDeadline] has passed and the guard, which may itself have been stopped, has not acted on it. Then
// AwaitGuard calls waiting, which may be nil, and waits for the guard. No worker may be left. When ctx ends first it
// returns the context's cause.
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
		case <-l.killed:
		case <-l.broken:
			return nil // the guard has died, so this process is about to exit
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close closes the lifeline and waits for its goroutine to end.
func (l *Lifeline) Close() {
	if l == nil {
		return
	}
	_ = l.link.Close()
	<-l.broken
	l.watchdog.close()
	_ = syscall.Close(l.death)
	if l.record >= 0 {
		_ = syscall.Close(l.record)
	}
}
