package siginfo

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"syscall"
)

// Origin says where the signals of one number came from since the last [Watcher.Take].
type Origin struct {
	// Kernel and Sent count the signals that the kernel has made and those that processes have sent. Both are 0 if that
	// is not known.
	Kernel, Sent int
	// PID is the process that has sent the last one, as this pid namespace numbers it; 0 for one outside of it. UID is
	// its real user.
	PID, UID int
	// Passed says that the last one was sent by a process that had received it from the kernel; see [Origin.Siginfo].
	// Unnamed says that it was sent in a way that does not name the sender, such as by a timer.
	Passed, Unnamed bool
}

// Sender is a process that has sent a signal.
type Sender struct {
	PID  int    // 0 for a process outside this pid namespace
	UID  int    // its real user
	User string // that user's name; empty if it has none on this machine
	// Command is the command line, at most 200 bytes of it; empty if the process had ended by then.
	Command string

	name  string // the kernel's name of the process
	ended bool
}

// findSender returns the process that has sent the last signal; nil if none is known to have sent it.
func (o Origin) findSender(procIsOurs bool) *Sender {
	if o.Sent == 0 || o.Passed || o.Unnamed {
		return nil
	}
	s := &Sender{PID: o.PID, UID: o.UID}
	if u, err := user.LookupId(strconv.Itoa(o.UID)); err == nil {
		s.User = u.Username
	}
	if s.PID > 0 && procIsOurs {
		s.name, s.Command = commandOf(s.PID)
		s.ended = s.name == "" && errors.Is(syscall.Kill(s.PID, 0), syscall.ESRCH) // /proc may hide other users' processes
	}
	return s
}

// String describes the sender in a few words, such as "pid 4711 (slurmstepd), user root".
func (s *Sender) String() string {
	process := fmt.Sprintf("pid %d", s.PID)
	switch {
	case s.PID == 0:
		process = "a process outside this container"
	case s.name != "":
		process += " (" + s.name + ")"
	case s.ended:
		process += ", which has ended"
	}
	if s.User == "" {
		return fmt.Sprintf("%s, uid %d", process, s.UID)
	}
	return process + ", user " + s.User
}

// From says in a few words where the last signal came from, such as "from pid 4711 (kill), user root", and returns its
// sender. text is empty if the origin is not known. sender is nil then, and if the kernel made the signal. procIsOurs
// says that /proc shows the processes of this pid namespace; else the command is not known. From reads /proc, so call
// it at once, before the sender ends.
func (o Origin) From(sig syscall.Signal, procIsOurs bool) (text string, sender *Sender) {
	switch sender = o.findSender(procIsOurs); {
	case sender != nil:
		text = "from " + sender.String()
	case o.Unnamed:
	case (o.Kernel > 0 || o.Passed) && (sig == syscall.SIGINT || sig == syscall.SIGQUIT || sig == syscall.SIGHUP):
		text = "from the terminal"
	case o.Kernel > 0 || o.Passed:
		text = "from the kernel"
	}
	return text, sender
}
