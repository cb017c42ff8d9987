package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SetExitNotice gives the guard a message, in place of the previous one. [Result.ExitNotice] returns the message if
// this process dies and nothing of the job is left then. Nil withdraws it. The guard does not interpret it.
//
// SetExitNotice does not block. If the guard reads nothing for long, because it was stopped from its terminal,
// SetExitNotice fails in the end.
func (l *Lifeline) SetExitNotice(notice []byte) error {
	if l == nil {
		return nil
	}
	if len(notice) > maxExitNotice {
		return fmt.Errorf("set the exit notice: it has %d bytes; at most %d are allowed", len(notice), maxExitNotice)
	}
	raw, err := l.link.SyscallConn()
	if err == nil {
		err = sendPacket(raw, append([]byte{packetNotice}, notice...))
	}
	if err != nil {
		return fmt.Errorf("set the exit notice: %w", err)
	}
	return nil
}

// ConfirmSuspended tells the guard that every process of the job has been stopped, and how many workers there are.
func (l *Lifeline) ConfirmSuspended(r SuspendRequest, workers int) {
	if l == nil {
		return
	}
	if raw, err := l.link.SyscallConn(); err == nil {
		n := uint16(min(workers, math.MaxUint16))
		_ = sendPacket(raw, binary.BigEndian.AppendUint16([]byte{packetSuspended, r.id}, n))
	}
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

// guardLink is the guard's end of a lifeline. Its own goroutine reads it, so that nothing that the child sends, or
// fails to send, delays the guard.
type guardLink struct {
	file *os.File
	raw  syscall.RawConn
	done chan struct{} // closed when the goroutine has ended, which owns the fields below until then

	exiting   bool          // the child announced its exit
	code      int           // the exit code that it announced
	announced chan struct{} // closed when code is set
	stuck     bool          // the child reported processes that do not die
	notice    []byte        // the child's exit notice; nil: none

	confirmed chan confirmation // the last confirmation that was not received yet
}

// confirmation says that the child has suspended the job.
type confirmation struct {
	id      byte
	workers int
}

// newGuardLink makes a lifeline, whose packets arrive whole or not at all. The caller closes theirs, the child's end.
func newGuardLink() (k *guardLink, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, -1, err
	}
	k = &guardLink{
		file: os.NewFile(uintptr(fds[0]), "lifeline"), done: make(chan struct{}), announced: make(chan struct{}),
		confirmed: make(chan confirmation, 1),
	}
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

// receive reads one packet. It does not block.
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
	case packetExit:
		if len(body) == 1 && !k.exiting {
			k.exiting, k.code = true, int(body[0])
			close(k.announced)
		}
	case packetStuck:
		k.stuck = true
	case packetSuspended:
		if len(body) == 3 {
			select {
			case <-k.confirmed: // it is for an older request
			default:
			}
			k.confirmed <- confirmation{id: body[0], workers: int(binary.BigEndian.Uint16(body[1:]))}
		}
	case packetNotice:
		k.notice = append([]byte(nil), body...) // nil if it is empty
	}
	return nil
}

// finish reads everything that a child which has exited had sent. It reports whether the child announced its exit.
func (k *guardLink) finish() (exiting bool) {
	// End of file may be late, because a worker that is being forked still has the other end.
	_ = k.file.SetReadDeadline(time.Unix(1, 0))
	<-k.done
	_ = k.raw.Control(func(fd uintptr) {
		for k.receive(int(fd)) == nil { // an empty socket is an error too
		}
	})
	return k.exiting
}

// notifyKilled tells the child that the deadline has passed. A stopped child receives it when it continues.
func (k *guardLink) notifyKilled() { _ = sendPacket(k.raw, []byte{packetKilled}) }

// sendSuspend tells the child to suspend the job.
func (k *guardLink) sendSuspend(id byte) { _ = sendPacket(k.raw, []byte{packetSuspend, id}) }

// sendContinue tells the child to continue the job.
func (k *guardLink) sendContinue() { _ = sendPacket(k.raw, []byte{packetContinue}) }

// sendShowStacks tells the child to show its workers' stacks.
func (k *guardLink) sendShowStacks() { _ = sendPacket(k.raw, []byte{packetShowStacks}) }

func (k *guardLink) close() {
	_ = k.file.Close()
	<-k.done
}
