package procs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Hold gives the guard a second descriptor of conn, in place of the one it holds by now. It closes
// it when nothing of the job is left any more, so the peer's end of file means just that,
// even if this process is killed. Until then, or [Lifeline.Release], the peer
// does not see that conn was closed here. The guard never reads or writes conn.
//
// It does not block: a guard that takes nothing for long (it was stopped from its
// terminal) makes Hold fail in the end.
func (l *Lifeline) Hold(conn syscall.Conn) error {
	if l == nil {
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("hand a connection to the guard: %w", err)
	}
	var sent error
	err = raw.Control(func(fd uintptr) { sent = l.say(sayHold, unix.UnixRights(int(fd))) })
	if err = errors.Join(err, sent); err != nil {
		return fmt.Errorf("hand a connection to the guard: %w", err)
	}
	return nil
}

// Release makes the guard close the connection that it holds, if any. It does not
// wait for that.
func (l *Lifeline) Release() error {
	if l == nil {
		return nil
	}
	if err := l.say(sayRelease, nil); err != nil {
		return fmt.Errorf("make the guard release a connection: %w", err)
	}
	return nil
}

func (l *Lifeline) say(what byte, rights []byte) error {
	raw, err := l.link.SyscallConn()
	if err != nil {
		return err
	}
	return sayOn(raw, what, rights)
}

// sayOn sends one byte, and a descriptor where rights has one, or fails at once.
func sayOn(raw syscall.RawConn, what byte, rights []byte) (err error) {
	ctl := raw.Control(func(fd uintptr) {
		for {
			err = unix.Sendmsg(int(fd), []byte{what}, rights, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(ctl, err)
}

// guardLink is the guard's end of a lifeline. A goroutine reads it, so that whatever the
// other end does, or leaves half done, holds nothing else up.
type guardLink struct {
	file *os.File
	raw  syscall.RawConn
	done chan struct{} // closed when the goroutine has ended; the fields below are its own until then

	ending bool // the child announced its end
	code   int  // with this exit code
	coding bool // which comes next

	announced chan struct{} // closed when code is there
	stuck     bool          // it has told of processes that do not die
	held      int           // the descriptor held for the child, or -1
}

// newGuardLink makes a lifeline; theirs, the child's end, is the caller's to close.
func newGuardLink() (k *guardLink, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, -1, err
	}
	k = &guardLink{file: os.NewFile(uintptr(fds[0]), "lifeline"), done: make(chan struct{}), held: -1, announced: make(chan struct{})}
	if k.raw, err = k.file.SyscallConn(); err != nil {
		_ = k.file.Close()
		_ = unix.Close(fds[1])
		return nil, -1, err
	}
	go k.listen()
	return k, fds[1], nil
}

func (k *guardLink) listen() {
	defer close(k.done)
	for {
		var got error
		err := k.raw.Read(func(fd uintptr) bool {
			got = k.receive(int(fd))
			return !errors.Is(got, unix.EAGAIN)
		})
		if err != nil || got != nil {
			return
		}
	}
}

// receive takes one byte, with its descriptor, and does as it says. It does not block.
func (k *guardLink) receive(fd int) error {
	var what [1]byte
	rights := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(fd, what[:], rights, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	if k.coding {
		if k.coding = false; !k.ending {
			k.ending, k.code = true, int(what[0])
			close(k.announced)
		}
		return nil
	}
	switch what[0] {
	case sayEnding:
		k.coding = true
	case sayStuck:
		k.stuck = true
	case sayHold:
		k.release()
		k.held = descriptor(rights[:oobn])
	case sayRelease:
		k.release()
	}
	return nil
}

// descriptor returns the one that came with a message, or -1.
func descriptor(rights []byte) int {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) == 0 {
		return -1
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return -1
	}
	return fds[0]
}

// finish takes all that a child which has ended had sent, and reports whether it
// announced its end. A descriptor that was never taken is safe too: on its way it is as open
// as anywhere.
func (k *guardLink) finish() (ending bool) {
	_ = k.file.SetReadDeadline(time.Unix(1, 0)) // end of file may be late: a worker in the middle of its fork has the other end too
	<-k.done
	_ = k.raw.Control(func(fd uintptr) {
		for k.receive(int(fd)) == nil { // until it is empty, which is an error too
		}
	})
	return k.ending
}

// release is for the goroutine, and for who has waited for it.
func (k *guardLink) release() {
	if k.held >= 0 {
		_ = unix.Close(k.held)
		k.held = -1
	}
}

// fired tells the child. One that is stopped has it when it wakes up.
func (k *guardLink) fired() { _ = sayOn(k.raw, sayFired, nil) }

func (k *guardLink) close() {
	_ = k.file.Close()
	<-k.done
	k.release()
}
