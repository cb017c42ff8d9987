package tcpstore

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/openfiles"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// accepting accepts the connections of one listener. ServerOptions.Accept may take long, so several of its calls run
// concurrently. They can share work, such as reading the kernel's list of sockets.
type accepting struct {
	s       *Server
	l       net.Listener
	loop    *loop
	places  chan struct{}  // holds one value for each running call of Accept
	asked   sync.WaitGroup // the goroutines of these calls
	failing atomic.Bool    // the last attempt has failed, and a warning has said so
	failed  chan error     // why a connection ends Serve
}

func newAccepting(s *Server, l net.Listener, loop *loop) *accepting {
	most := 0
	if s.opts.Accept != nil {
		most = max(1, openfiles.ClientShare(32*mostAsked)/32)
	}
	return &accepting{s: s, l: l, loop: loop, places: make(chan struct{}, most), failed: make(chan error, 1)}
}

// mostAsked limits the calls of ServerOptions.Accept that run concurrently. Each may need three files: the accepted
// socket, its duplicate, and a socket for a query to the kernel. If the process may open few files, the limit of calls
// is 1/128 of these, so that the calls leave most of the files that anyFiles keeps.
const mostAsked = 64

// wait returns when every call of ServerOptions.Accept has returned.
func (a *accepting) wait() { a.asked.Wait() }

// run returns when nothing more can be accepted.
func (a *accepting) run() error {
	for {
		nc, err := a.l.Accept()
		switch {
		case err != nil:
			err = a.pause(err)
		case a.s.opts.Accept == nil:
			err = a.adopt(nc)
		default:
			a.places <- struct{}{}
			a.asked.Go(func() {
				defer func() { <-a.places }()
				if err := a.adopt(nc); err != nil {
					select {
					case a.failed <- err:
						_ = a.l.Close()
					default:
					}
				}
			})
		}
		if err != nil {
			select {
			case err = <-a.failed:
			default:
			}
			return err
		}
	}
}

// adopt passes nc to the loop, or closes it. It tries again after failures that pass.
func (a *accepting) adopt(nc net.Conn) error {
	for {
		err := a.loop.adopt(nc)
		if err == nil {
			a.failing.Store(false)
			return nil
		}
		if err := a.pause(err); err != nil {
			_ = nc.Close()
			return err
		}
	}
}

// pause returns when another attempt may succeed, or an error if none can.
func (a *accepting) pause(err error) error {
	switch {
	case a.s.closing():
		return kvstore.ErrClosed
	case errors.Is(err, net.ErrClosed), errors.Is(err, errNoSocket):
		return fmt.Errorf("accept store connection on %s: %w", a.l.Addr(), err)
	case fileLimitReached(err) && a.s.opts.freeFiles(a.loop, evictBatch):
		return nil
	}
	level := zerolog.DebugLevel // out of files or memory, a firewall, a network that is down: these pass
	if a.failing.CompareAndSwap(false, true) {
		level = zerolog.WarnLevel
	}
	a.s.opts.Logger.WithLevel(level).Err(err).Msg("accept store connection, try again")
	select {
	case <-a.s.stop:
	case <-time.After(100 * time.Millisecond):
	}
	return nil
}
