package tcpstore

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// poller reports which sockets are readable or writable, with kqueue, level-triggered. Only wake may be called while
// another method runs.
type poller struct {
	kq     int
	events [256]unix.Kevent_t
}

func newPoller() (*poller, error) {
	kq, err := unix.Kqueue()
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(kq)
	p := &poller{kq: kq}
	if err := p.change(0, unix.EVFILT_USER, unix.EV_ADD|unix.EV_CLEAR, 0); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *poller) close() { _ = unix.Close(p.kq) }

func (p *poller) change(ident, filter, flags int, fflags uint32) error {
	var event unix.Kevent_t
	unix.SetKevent(&event, ident, filter, flags)
	event.Fflags = fflags
	_, err := unix.Kevent(p.kq, []unix.Kevent_t{event}, nil, nil)
	return err
}

// add watches fd for reading. Closing fd ends that.
func (p *poller) add(fd int) error { return p.change(fd, unix.EVFILT_READ, unix.EV_ADD, 0) }

// remove stops watching fd for reading.
func (p *poller) remove(fd int) error { return p.change(fd, unix.EVFILT_READ, unix.EV_DELETE, 0) }

// watchWrite watches fd for writing instead of reading, or the other way round.
func (p *poller) watchWrite(fd int, toWrite bool) error {
	from, to := unix.EVFILT_WRITE, unix.EVFILT_READ
	if toWrite {
		from, to = to, from
	}
	if err := p.change(fd, from, unix.EV_DELETE, 0); err != nil {
		return err
	}
	return p.change(fd, to, unix.EV_ADD, 0)
}

// wake makes the wait in progress, or the next one, return.
func (p *poller) wake() {
	_ = p.change(0, unix.EVFILT_USER, 0, unix.NOTE_TRIGGER) // it cannot fail while kq is open
}

// wait waits for at least one event, up to timeout; a negative timeout is forever. It returns the number of events,
// and whether there may be more.
func (p *poller) wait(timeout time.Duration) (n int, more bool, err error) {
	var limit *unix.Timespec
	if timeout >= 0 {
		ts := unix.NsecToTimespec(timeout.Nanoseconds())
		limit = &ts
	}
	n, err = unix.Kevent(p.kq, nil, p.events[:], limit)
	if errors.Is(err, unix.EINTR) {
		return 0, true, nil
	}
	return n, n == len(p.events), err
}

// fd returns the socket of event i, or -1 for a wake.
func (p *poller) fd(i int) int {
	if p.events[i].Filter == unix.EVFILT_USER {
		return -1
	}
	return int(p.events[i].Ident)
}

// sockRead reads available bytes. fd must be nonblocking.
func sockRead(fd int, b []byte) (int, error) { return unix.Read(fd, b) }

// sockWrite writes as much as fits. fd must be nonblocking; b must not be empty.
func sockWrite(fd int, b []byte) (int, error) { return unix.Write(fd, b) }

// wouldBlock reports whether err means to try again later.
func wouldBlock(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
}
