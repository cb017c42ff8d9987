package security

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// crowdSize is how many hostile connections are open at once.
const crowdSize = 1000

// phases are how far a hostile connection goes before it falls silent.
var phases = []struct {
	name   string
	engage func(nc net.Conn, clientHello []byte) error
}{
	{"silent", func(net.Conn, []byte) error { return nil }},
	{"after the preamble", func(nc net.Conn, _ []byte) error {
		_, err := io.WriteString(nc, preamble)
		return err
	}},
	{"in the TLS handshake", func(nc net.Conn, clientHello []byte) error {
		if _, err := nc.Write(clientHello); err != nil {
			return err
		}
		_, err := io.ReadFull(nc, make([]byte, len(preamble)+100)) // the store has made its keys
		return err
	}},
	{"after the TLS handshake", func(nc net.Conn, _ []byte) error {
		_, err := newPeer(nc, "")
		return err
	}},
	{"after the challenge", func(nc net.Conn, _ []byte) error {
		p, err := newPeer(nc, "guess")
		if err == nil {
			_, err = p.hello(roleAgent, run)
		}
		return err
	}},
}

// crowd keeps hostile connections open until the test ends.
type crowd struct {
	mu    sync.Mutex
	conns []net.Conn
}

// gather opens the connections and brings each of them into a phase. The store may close some.
func gather(t testing.TB, addr string, engage func(net.Conn, []byte) error, clientHello []byte) *crowd {
	t.Helper()
	c := &crowd{}
	t.Cleanup(c.leave)
	places := make(chan struct{}, 50) // connections under way
	var all sync.WaitGroup
	engaged := 0
	for range crowdSize {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				return
			}
			_ = nc.SetDeadline(time.Now().Add(peerTimeout))
			err = engage(nc, clientHello)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.conns = append(c.conns, nc)
			if err == nil {
				engaged++
			}
		})
	}
	all.Wait()
	if engaged < crowdSize/2 {
		t.Errorf("only %d of %d hostile connections came that far", engaged, crowdSize)
	}
	return c
}

func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, nc := range c.conns {
		_ = nc.Close()
	}
	c.conns = nil
}

// recordHello returns the bytes of a ClientHello with the preamble before it, which any connection can send.
func recordHello(t testing.TB) []byte {
	t.Helper()
	got := make(chan []byte, 1)
	w := listen(t, func(nc net.Conn, _ *call) {
		b := make([]byte, 4096)
		n, _ := io.ReadAtLeast(nc, b, len(preamble)+100)
		got <- b[:n]
	})
	_, _ = newPeer(connect(t, w.addr), "")
	return <-got
}

// runHosted runs a job of two nodes whose first agent hosts the store. The job restarts a round after a failure, and
// ends. runHosted returns how long that took from the start of the second agent on.
func runHosted(t testing.TB, secretFile string, meanwhile func(addr string)) time.Duration {
	t.Helper()
	j := hostedJob(t, secretFile, restartOnce)
	if meanwhile != nil {
		meanwhile(j.addr)
	}
	began := time.Now()
	j.finish(t)
	return time.Since(began)
}

// TestHostileCrowd opens 1,000 connections of unknown peers to the store of a job's agent, in each phase of the
// handshake, while the job starts, restarts a round and ends.
func TestHostileCrowd(t *testing.T) {
	_, secretFile := newSecret(t)
	hello := recordHello(t)
	undisturbed := runHosted(t, secretFile, nil)
	t.Logf("undisturbed: %v", undisturbed)
	for _, phase := range phases {
		t.Run(phase.name, func(t *testing.T) {
			var crowded *crowd
			var began time.Time
			disturbed := runHosted(t, secretFile, func(addr string) {
				began = time.Now()
				crowded = gather(t, addr, phase.engage, hello)
			})
			t.Logf("%d connections came in %v; the job took %v, undisturbed %v",
				len(crowded.conns), time.Since(began)-disturbed, disturbed, undisturbed)
			if disturbed > undisturbed+10*time.Second {
				t.Errorf("the job took %v, undisturbed %v", disturbed, undisturbed)
			}
		})
	}
}
