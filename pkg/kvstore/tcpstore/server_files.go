package tcpstore

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/openfiles"
)

// Each connection takes one of the process's files, of which agents and the process itself need some too. A client
// that has sent a request may be a worker, so the server never closes it to free a file. Instead, such clients get none
// of the last eighth of the files. In the last sixteenth, each new connection makes the server close an unused
// connection and one of an agent that has not authenticated. The kernel gives a new file the lowest free number, so the
// number of a connection's file shows how many files are in use, whoever opened them.

const (
	workerParts = 8
	anyParts    = 16
	mostKept    = 16 << 10 // files that are kept, with a high limit
)

// workerFiles returns the first number of the files that no worker gets.
func workerFiles() int { return openfiles.ReserveStart(workerParts, mostKept) }

// anyFiles returns the first number of the files for which unused connections are closed.
func anyFiles() int { return openfiles.ReserveStart(anyParts, mostKept/2) }

// takeWorkerFile is called when the client of c has sent its first byte. If c's file is one that no worker gets, c
// takes a lower one, which has become free since, or is refused.
func (c *conn) takeWorkerFile(first byte) error {
	l := c.loop
	if c.fd < l.workerFiles || first >= firstAgentByte && l.opts.Agents != nil {
		return nil
	}
	lower, err := unix.FcntlInt(uintptr(c.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil && lower < l.workerFiles {
		return c.moveTo(lower)
	}
	if err == nil {
		_ = syscall.Close(lower)
	}
	limit := openfiles.Limit()
	return refuse(ReasonFiles, "this process may have %d open files (ulimit -n) and keeps %d of them for agents and for "+
		"itself; raise the limit", limit, limit-l.workerFiles)
}

// moveTo closes c's file and continues with fd, a duplicate of it.
func (c *conn) moveTo(fd int) error {
	l, old := c.loop, c.fd
	err := l.poll.remove(old) // epoll watches a file until its last duplicate is closed
	l.conns[old], l.conns[fd], c.fd = nil, c, fd
	return errors.Join(err, os.NewSyscallError("close", syscall.Close(old)), l.poll.add(fd))
}

// fileLimitReached reports whether err means that the process, or the machine, has as many files open as it may.
func fileLimitReached(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// freeFiles closes up to n unused connections, and as many of agents that have not authenticated, so that files can be
// opened again. It returns whether it closed any.
func (o *ServerOptions) freeFiles(l *loop, n int) bool {
	closed := 0
	l.call(func() { closed = l.evict(n, nil) })
	if o.ShedAgents != nil {
		closed += o.ShedAgents(n)
	}
	return closed > 0
}
