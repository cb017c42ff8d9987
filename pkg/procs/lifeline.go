package procs

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Part is what a process of this program is to the job.
type Part string

// The parts. The process that the user starts has none yet.
const (
	PartNone  Part = ""
	PartGuard Part = "guard" // starts the agent and cleans up after it
	PartAgent Part = "agent" // runs the job
)

// lifelineVar is the environment variable with which a guard tells its child
// PART:GUARDPID:FD.
const lifelineVar = "ELASTICRUN_LIFELINE"

func lifelineEnv(part Part, fd int) string {
	return fmt.Sprintf("%s=%s:%d:%d", lifelineVar, part, os.Getpid(), fd)
}

// Lifeline connects a process to the guard that started it.
type Lifeline struct {
	link   *os.File
	broken chan struct{}
}

// OpenLifeline tells which part this process plays and opens its lifeline; the
// lifeline of [PartNone] is nil. The mark is taken out of the environment, so no
// child inherits it. An error means that the guard died before this process got
// so far: it must end without starting anything.
func OpenLifeline() (Part, *Lifeline, error) {
	mark, set := os.LookupEnv(lifelineVar)
	if !set {
		return PartNone, nil, nil
	}
	if err := os.Unsetenv(lifelineVar); err != nil {
		return PartNone, nil, err
	}
	f := strings.Split(mark, ":")
	if len(f) != 3 {
		return PartNone, nil, fmt.Errorf("environment variable %s=%q is not one that elasticrun set; unset it", lifelineVar, mark)
	}
	fd, err := strconv.Atoi(f[2])
	if err != nil || f[1] != strconv.Itoa(os.Getppid()) {
		return PartNone, nil, fmt.Errorf("the guard, pid %s, is gone", f[1])
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		return PartNone, nil, fmt.Errorf("open the lifeline: %w", err)
	}
	l := &Lifeline{link: os.NewFile(uintptr(fd), "lifeline"), broken: make(chan struct{})}
	go l.watch()
	return Part(f[0]), l, nil
}

// watch ends when the guard does, or when the process closes the lifeline.
func (l *Lifeline) watch() {
	defer close(l.broken)
	var b [1]byte
	_, _ = l.link.Read(b[:]) // nothing is ever sent this way
}

// Broken is closed when the guard has died; nil lifelines never break.
func (l *Lifeline) Broken() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.broken
}

// Announce tells the guard that the process ends on purpose, so that its exit
// code is to be taken at its word. A process that crashes does not come so far.
func (l *Lifeline) Announce() {
	if l != nil {
		_, _ = l.link.Write([]byte{1})
	}
}

// Close ends the watching and waits for it.
func (l *Lifeline) Close() {
	if l == nil {
		return
	}
	_ = l.link.Close()
	<-l.broken
}

// lifelinePair makes the two ends.
func lifelinePair() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
	}
	return os.NewFile(uintptr(fds[0]), "lifeline"), os.NewFile(uintptr(fds[1]), "lifeline"), nil
}

// NotIgnored returns those of sigs that were not ignored when the process began:
// nohup and a shell's background jobs mean it, and children inherit it. The Go
// runtime knows that of SIGHUP and SIGINT only.
func NotIgnored(sigs []syscall.Signal) []os.Signal {
	var out []os.Signal
	for _, sig := range slices.Compact(slices.Sorted(slices.Values(sigs))) {
		if !signal.Ignored(sig) {
			out = append(out, sig)
		}
	}
	return out
}
