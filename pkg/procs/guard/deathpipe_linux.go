package guard

import "golang.org/x/sys/unix"

// deathPipe makes the kernel continue this process with SIGCONT when the child dies. The child holds the only write
// end and writes nothing, so the pipe changes only when the child's end closes. Without it, the death of a child would
// go unnoticed while this process is stopped, and the kernel sends SIGHUP and SIGCONT to stopped process groups that
// become orphans. Even if the kernel refuses to send the signal, the shell's SIGCONT comes.
type deathPipe struct{ read, write int }

func newDeathPipe() (deathPipe, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return deathPipe{-1, -1}, err
	}
	fd := uintptr(fds[0])
	_, _ = unix.FcntlInt(fd, unix.F_SETSIG, int(unix.SIGCONT))
	_, _ = unix.FcntlInt(fd, unix.F_SETOWN, unix.Getpid())
	_, _ = unix.FcntlInt(fd, unix.F_SETFL, unix.O_NONBLOCK|unix.O_ASYNC)
	return deathPipe{fds[0], fds[1]}, nil
}

// isBroken reports whether the child has died.
func (p *deathPipe) isBroken() bool {
	fds := []unix.PollFd{{Fd: int32(p.read)}} // a hangup is always reported
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// closeWrite closes this process's copy of the child's end.
func (p *deathPipe) closeWrite() {
	if p.write >= 0 {
		_ = unix.Close(p.write)
		p.write = -1
	}
}

func (p *deathPipe) close() {
	p.closeWrite()
	if p.read >= 0 {
		_ = unix.Close(p.read)
		p.read = -1
	}
}
