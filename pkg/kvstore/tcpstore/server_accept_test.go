package tcpstore

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
)

// Calls of Accept run concurrently, so a slow call delays no other connection.
func TestAcceptIsAskedAtOnce(t *testing.T) {
	const n = 4
	var asked sync.WaitGroup
	asked.Add(n)
	_, addr := startServer(t, ServerOptions{Accept: func(net.Conn) error {
		asked.Done()
		asked.Wait() // for all the others
		return nil
	}})
	var clients []*rawClient
	for range n {
		clients = append(clients, dial(t, addr, ProtocolV2))
	}
	for _, c := range clients {
		c.ping()
	}
}

// A server closes while Accept decides, and while it cannot decide.
func TestCloseDuringAccept(t *testing.T) {
	for _, err := range []error{nil, errors.New("refused"), syscall.EMFILE} {
		asked, decide := make(chan struct{}, 1), make(chan struct{})
		s, addr := startServer(t, ServerOptions{Accept: func(net.Conn) error {
			select {
			case asked <- struct{}{}:
			default:
			}
			<-decide
			return err
		}})
		c := dial(t, addr, ProtocolV2)
		<-asked
		closed := make(chan struct{})
		go func() { defer close(closed); s.Close() }()
		close(decide)
		<-closed
		c.expectClosed()
	}
}
