package guard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SetExitNotice gives the guard a message, in place of the one before, which [Result.ExitNotice] returns if this process
// dies and nothing of the job is left then. nil withdraws it. The guard does not look into it.
//
// It does not block: a guard that reads nothing for long (it was stopped from its terminal) makes it fail in the end.
func (l *Lifeline) SetExitNotice(notice []byte) error {
	if l == nil {
		return nil
	}
	if len(notice) > maxExitNotice {
		return fmt.Errorf("give the guard an exit notice: it has %d bytes, at most %d are possible", len(notice), maxExitNotice)
	}
	raw, err := l.link.SyscallConn()
	if err == nil {
		err = sendPacket(raw, append([]byte{packetNotice}, notice...))
	}
	if err != nil {
		return fmt.Errorf("give the guard an exit notice: %w", err)
	}
	return nil
}

// sendPacket sends one packet, or fails at once.
func sendPacket(raw syscall.RawConn, packet []byte) (err error) {
	ctl := raw.Control(func(fd uintptr) {
		for {
			err = unix.Sendto(int(fd), packet, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, nil)
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

	ending    bool          // the child announced its end
	code      int           // with this exit code
	announced chan struct{} // closed when code is there
	stuck     bool          // the child reported processes that do not die
	notice    []byte        // the child's exit notice; nil: none
}

// newGuardLink makes a lifeline, whose packets arrive whole or not at all; theirs, the child's end, is the caller's to close.
func newGuardLink() (k *guardLink, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, -1, err
	}
	k = &guardLink{file: os.NewFile(uintptr(fds[0]), "lifeline"), done: make(chan struct{}), announced: make(chan struct{})}
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

// receive takes one packet. It does not block.
func (k *guardLink) receive(fd int) error {
	packet := make([]byte, 1+maxExitNotice)
	n, _, err := unix.Recvfrom(fd, packet, unix.MSG_DONTWAIT)
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	switch body := packet[1:n]; packet[0] {
	case packetEnding:
		if len(body) == 1 && !k.ending {
			k.ending, k.code = true, int(body[0])
			close(k.announced)
		}
	case packetStuck:
		k.stuck = true
	case packetNotice:
		k.notice = append([]byte(nil), body...) // nil if it is empty
	}
	return nil
}

// finish takes all that a child which has ended had sent, and reports whether it
// announced its end.
func (k *guardLink) finish() (ending bool) {
	_ = k.file.SetReadDeadline(time.Unix(1, 0)) // end of file may be late: a worker in the middle of its fork has the other end too
	<-k.done
	_ = k.raw.Control(func(fd uintptr) {
		for k.receive(int(fd)) == nil { // until it is empty, which is an error too
		}
	})
	return k.ending
}

// fired tells the child that the deadline has passed. One that is stopped has it when it wakes up.
func (k *guardLink) fired() { _ = sendPacket(k.raw, []byte{packetFired}) }

func (k *guardLink) close() {
	_ = k.file.Close()
	<-k.done
}
