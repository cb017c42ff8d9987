package rpc_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// slowStore returns another address of a store, whose answers arrive later by delay. A member that uses it reads a
// change from the store later than other members. So it knows a change immediately only if a member has notified it.
func slowStore(t *testing.T, store string, delay time.Duration) string {
	t.Helper()
	var running sync.WaitGroup
	t.Cleanup(running.Wait) // the members have closed their connections
	return testenv.Serve(t, func(member net.Conn) {
		running.Go(func() { relaySlowly(member, store, delay) })
	})
}

// relaySlowly relays one connection until either end closes it.
func relaySlowly(member net.Conn, addr string, delay time.Duration) {
	defer member.Close()
	store, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		defer member.Close()
		relayOneWay(member, store, delay)
	})
	relayOneWay(store, member, 0)
	store.Close()
	back.Wait()
}

// relayOneWay relays one direction.
func relayOneWay(to, from net.Conn, delay time.Duration) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if delay > 0 {
			<-time.After(delay)
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}
