package tcpstore

import (
	"errors"
	"net"
	"syscall"
)

// probe looks whether anything has come on an idle connection. Nothing should: the end of the connection means
// that the server has closed it, and bytes that nobody asked for are no answer.
type probe struct {
	raw  syscall.RawConn
	read func(fd uintptr) bool
	err  error
}

// newProbe returns nil where nc has no file descriptor.
func newProbe(nc net.Conn) *probe {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil // it is closed, and every use of it will tell
	}
	p := &probe{raw: raw}
	var one [1]byte
	p.read = func(fd uintptr) bool {
		_, p.err = syscall.Read(int(fd), one[:]) // does not block: Go's sockets never do
		return true
	}
	return p
}

// silent tells that nothing has come and that the connection has not ended.
func (p *probe) silent() bool {
	if err := p.raw.Read(p.read); err != nil {
		return false
	}
	return errors.Is(p.err, syscall.EAGAIN) || errors.Is(p.err, syscall.EINTR)
}
