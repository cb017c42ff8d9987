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

// accepting accepts the connections of one listener. ServerOptions.Accept may take long, so it is asked about several
// connections at a time, which can share what it has to read.
type accepting struct {
	s       *Server
	l       net.Listener
	loop    *loop
	places  chan struct{}  // holds one value for each connection that Accept is asked about
	asked   sync.WaitGroup // their goroutines
	failing atomic.Bool    // the last attempt has failed, and a warning has said so
	failed  chan error     // why a connection ends Serve
}

func newAccepting(s *Server, l net.Listener, loop *loop) *accepting {
	most := 0
	if s.opts.Accept != nil {
		most = max(1, openfiles.Quarter(32*mostAsked)/32)
	}
	return &accepting{s: s, l: l, loop: loop, places: make(chan struct{}, most), failed: make(chan error, 1)}
}

// mostAsked is how many connections ServerOptions.Accept is asked about at a time. Each may need three files: accepted,
// duplicated, and one to ask the kernel with. So with few files it is the 128th part of them, and leaves most of those
// that anyFiles keeps.
const mostAsked = 64

// wait returns when all connections have been decided about.
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
