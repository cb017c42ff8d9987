package tcpstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// errNoSocket means that a connection has no file descriptor.
var errNoSocket = errors.New("not a socket")

// adopt begins to serve nc, or refuses it. It closes nc, except after an error after which the caller may try again.
func (l *loop) adopt(nc net.Conn) error {
	remote := nc.RemoteAddr()
	if l.opts.Accept != nil {
		err := l.opts.Accept(nc)
		if fileLimitReached(err) {
			return err
		}
		if err != nil {
			return l.turnAway(nc, err)
		}
	}
	fd, err := socketOf(nc)
	if err != nil {
		return err
	}
	nc.Close()
	if fd >= l.anyFiles {
		l.opts.freeFiles(l, 1)
	}
	if !l.post(func() { l.addConn(fd, remote) }) {
		_ = syscall.Close(fd)
		return kvstore.ErrClosed
	}
	return nil
}

// turnAway closes nc because of an error of ServerOptions.Accept.
func (l *loop) turnAway(nc net.Conn, err error) error {
	turned := l.post(func() {
		l.accepted++
		if !errors.Is(err, io.EOF) {
			l.logRefusal(nc.RemoteAddr(), &refusal{ReasonNotAdmitted, err})
		}
		nc.Close() // last, so that a client that sees its connection end finds it counted
	})
	if !turned {
		nc.Close()
		return kvstore.ErrClosed
	}
	return nil
}

// socketOf returns a duplicate of nc's file descriptor. It does not block.
func socketOf(nc net.Conn) (int, error) {
	socket, ok := nc.(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("connection of type %T: %w", nc, errNoSocket)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	if controlErr := raw.Control(func(original uintptr) {
		fd, err = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0)
	}); controlErr != nil {
		return -1, controlErr
	}
	return fd, os.NewSyscallError("dup", err)
}

// handOver passes the connection, with its first bytes, to ServerOptions.Agents, and returns errHandedOver. If no file
// can be opened for it, handOver closes the connection.
func (c *conn) handOver(first []byte) error {
	if err := c.loop.poll.remove(c.fd); err != nil {
		return err
	}
	file := os.NewFile(uintptr(c.fd), "agent")
	nc, err := net.FileConn(file)
	if fileLimitReached(err) && c.loop.evict(evictBatch, c) > 0 {
		nc, err = net.FileConn(file)
	}
	file.Close()
	if err == nil {
		c.loop.opts.Agents(&prefixedConn{Conn: nc, begin: bytes.NewReader(bytes.Clone(first))})
	}
	return errors.Join(errHandedOver, err)
}

// prefixedConn is a connection whose first bytes were already read.
type prefixedConn struct {
	net.Conn
	begin *bytes.Reader
}

func (c *prefixedConn) Read(b []byte) (int, error) {
	if c.begin.Len() > 0 {
		return c.begin.Read(b)
	}
	return c.Conn.Read(b)
}

// CloseWrite closes the sending direction, as [net.TCPConn.CloseWrite] does.
func (c *prefixedConn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}
