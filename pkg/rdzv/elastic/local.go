package elastic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/userdir"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

// Stores on a Unix socket
//
// The agents of one user on one machine can meet at a Unix socket instead of a port. Its folder belongs to the user
// alone, so the kernel decides who may connect, and no secret is needed. Three rules make sure that only one agent
// hosts the store of a run:
//
//  1. Only the holder of the lock beside the socket may host. The kernel releases the lock when its holder dies,
//     however that happens. The next holder then replaces the socket, which nobody serves.
//  2. The holder of the lock asks at the socket before it replaces it. A program that cleans temporary folders may have
//     removed the lock's file, while the host still serves the socket.
//  3. A host also holds a slot of the run on this machine. The slot reveals a host that serves another folder, or one
//     whose folder was removed as a whole, as at the user's logout.

// lockSuffix is what the lock's file has after the name of the socket.
const lockSuffix = ".lock"

// LocalHostError says that another agent of this machine hosts the run, but not at this socket.
type LocalHostError struct{ RunID, Socket string }

func (e *LocalHostError) Error() string {
	return fmt.Sprintf("another agent of this machine hosts run %q, but not at %s, where this one looks for it", e.RunID,
		e.Socket)
}

// LocalSocketError says that this agent cannot make its socket, or the lock beside it, in the user's folder.
type LocalSocketError struct {
	Socket string
	Err    error
}

func (e *LocalSocketError) Error() string {
	return fmt.Sprintf("the socket %s, where agents meet, cannot be made: %v", e.Socket, e.Err)
}

// Unwrap returns the system's error.
func (e *LocalSocketError) Unwrap() error { return e.Err }

// DialLocal connects to the Unix socket of a store. It refuses a server of another user than this one and root.
func DialLocal(ctx context.Context, socket string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, machine.SystemError(err)
	}
	uid, err := userdir.PeerUID(c.(*net.UnixConn))
	if err == nil && !userdir.Trusted(uid) {
		err = fmt.Errorf("user %d listens there", uid)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// LocalDialOptions returns how to connect to the store at a Unix socket.
func LocalDialOptions(socket string) coord.DialOptions {
	return coord.DialOptions{
		Addr: socket, Conn: func(ctx context.Context) (net.Conn, error) { return DialLocal(ctx, socket) },
	}
}

// attemptLocal connects to the store at the socket once. It hosts the store instead if nobody does and this agent may.
func (a *C10d) attemptLocal(ctx context.Context, mayHost bool) (coord.Store, error) {
	if !mayHost {
		return a.joinLocal(ctx)
	}
	lock, err := lockFile(a.Socket + lockSuffix)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return a.joinLocal(ctx)
	case err != nil:
		return nil, &LocalSocketError{a.Socket, machine.SystemError(err)}
	}
	store, err := a.joinLocal(ctx)
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOENT) {
		return store, errors.Join(err, lock.Close()) // without removing it: another agent may wait for it
	}
	ln, err := a.listenLocal(lock)
	if err != nil {
		return nil, errors.Join(err, unlockFile(lock))
	}
	h := a.newHost(nil, ln, nil)
	h.place.createMarkers(a)
	h.place.warnOfPredecessor(a)
	a.Logger.Info().Str("socket", a.Socket).Msg("hosting the rendezvous")
	ln.serve(h.server.ServeConn, a.Logger)
	return a.serve(ctx, h)
}

// joinLocal connects to the store at the socket.
func (a *C10d) joinLocal(ctx context.Context) (coord.Store, error) {
	opts := LocalDialOptions(a.Socket)
	opts.Version, opts.Role, opts.RunID, opts.Secret, opts.TTL = a.Version, a.role, a.RunID, a.Secret, a.TTL
	client, err := coord.Dial(ctx, opts)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.client = client
	return client, nil
}

// localListener accepts agents at the socket of a store. Close it once, after serve.
type localListener struct {
	ln       *net.UnixListener
	acceptor *machine.Acceptor // of serve
	lock     *os.File
	slot     io.Closer
}

// listenLocal listens at the socket, as the holder of its lock. After an error the caller keeps the lock.
func (a *C10d) listenLocal(lock *os.File) (*localListener, error) {
	slot, err := machine.TakeSlot(machine.SlotName(a.RunID, "local", 0))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, &LocalHostError{a.RunID, a.Socket}
	case err != nil:
		return nil, fmt.Errorf("claim to host run %q: %w", a.RunID, err)
	}
	l := &localListener{lock: lock, slot: slot}
	if err = os.Remove(a.Socket); err == nil || errors.Is(err, os.ErrNotExist) {
		l.ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: a.Socket, Net: "unix"})
	}
	if err != nil {
		_ = slot.Close()
		return nil, &LocalSocketError{a.Socket, machine.SystemError(err)}
	}
	return l, nil
}

// serve hands the connections of this user and of root to handle until Close.
func (l *localListener) serve(handle func(net.Conn), log zerolog.Logger) {
	l.acceptor = machine.Accept(l.ln, func(c net.Conn) {
		if uid, err := userdir.PeerUID(c.(*net.UnixConn)); err != nil || !userdir.Trusted(uid) {
			log.Warn().Int("user", uid).Err(err).Msg("another user connected to the rendezvous, and was refused")
			_ = c.Close()
			return
		}
		handle(c)
	}, nil)
}

// Close removes the socket, and then gives up what reserves it: the next host finds nothing of this one.
func (l *localListener) Close() error {
	err := l.acceptor.Close() // it removes the socket
	return errors.Join(err, l.slot.Close(), unlockFile(l.lock))
}

// lockFile makes and locks a file. Workers do not inherit it, since package os opens files close-on-exec. The error is
// EWOULDBLOCK if another process has the lock.
func lockFile(path string) (*os.File, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
			err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		}
		mine, err1 := file.Stat()
		now, err2 := os.Lstat(path)
		if err == nil && err1 == nil && err2 == nil && os.SameFile(mine, now) {
			return file, nil
		}
		_ = file.Close()
		switch {
		case err != nil || err1 != nil:
			return nil, errors.Join(err, err1)
		case err2 != nil && !errors.Is(err2, os.ErrNotExist):
			return nil, err2
		} // else its last holder has removed it before it was locked
	}
}

// unlockFile removes a locked file and releases the lock, in this order: whoever opens the path next makes a new file.
// If the file was removed before, the path may be another process's lock, which stays.
func unlockFile(file *os.File) error {
	mine, err1 := file.Stat()
	now, err2 := os.Lstat(file.Name())
	if err1 == nil && err2 == nil && os.SameFile(mine, now) {
		err1 = os.Remove(file.Name())
	}
	return errors.Join(err1, file.Close())
}
