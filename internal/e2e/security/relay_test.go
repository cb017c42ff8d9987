package security

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// wire is a listener between clients and a store. It records the bytes of each direction of each connection.
type wire struct {
	addr string

	mu    sync.Mutex
	calls []*call
}

// call is one connection of a client.
type call struct {
	mu            sync.Mutex
	toStore, back []byte // as the client sent and received them
}

// sent returns what the client has sent so far.
func (c *call) sent() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.toStore)
}

// received returns what the client was sent so far.
func (c *call) received() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.back)
}

func (c *call) record(fromClient bool, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fromClient {
		c.toStore = append(c.toStore, b...)
	} else {
		c.back = append(c.back, b...)
	}
}

// all returns the connections so far.
func (w *wire) all() []*call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*call(nil), w.calls...)
}

// listen calls handle for each connection until the test ends.
func listen(t testing.TB, handle func(net.Conn, *call)) *wire {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{addr: ln.Addr().String()}
	var running sync.WaitGroup
	var open sync.Map
	running.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			c := &call{}
			w.mu.Lock()
			w.calls = append(w.calls, c)
			w.mu.Unlock()
			open.Store(nc, nil)
			running.Go(func() {
				defer open.Delete(nc)
				defer nc.Close()
				handle(nc, c)
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		open.Range(func(nc, _ any) bool { _ = nc.(net.Conn).Close(); return true })
		running.Wait()
	})
	return w
}

// pump copies from one connection to another and records the bytes. change may change them; nil changes nothing.
func pump(to io.Writer, from io.Reader, record func([]byte), change func([]byte)) {
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			record(b[:n])
			if change != nil {
				change(b[:n])
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// forward joins a client's connection and a connection to the store until either ends.
func forward(client, store net.Conn, c *call, toStore, back func([]byte)) {
	var both sync.WaitGroup
	both.Go(func() {
		defer store.Close()
		pump(store, client, func(b []byte) { c.record(true, b) }, toStore)
	})
	both.Go(func() {
		defer client.Close()
		pump(client, store, func(b []byte) { c.record(false, b) }, back)
	})
	both.Wait()
}

// byteRelay forwards bytes to a store. change, if not nil, changes the bytes of one direction.
func byteRelay(t testing.TB, addr string, change func(toStore bool) func([]byte)) *wire {
	t.Helper()
	if change == nil {
		change = func(bool) func([]byte) { return nil }
	}
	return listen(t, func(client net.Conn, c *call) {
		store, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		forward(client, store, c, change(true), change(false))
	})
}

// serverTLS returns the configuration of a peer in a store's place.
func serverTLS(t testing.TB) *tls.Config {
	t.Helper()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{testenv.NewAuthority(t, "fake").Pair(t, "fake store")},
	}
}

// answerTLS runs the TLS handshake in a store's place.
func answerTLS(client net.Conn, config *tls.Config) (*tls.Conn, error) {
	_ = client.SetDeadline(time.Now().Add(peerTimeout))
	below := &afterPreamble{Conn: client}
	if _, err := below.Read(nil); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(client, preamble); err != nil {
		return nil, err
	}
	inside := tls.Server(below, config)
	return inside, inside.Handshake()
}

// frameRelay has a TLS connection with the client and another one with the store, and forwards frames. change, if not
// nil, changes the frames of one direction.
func frameRelay(t testing.TB, addr string, change func(toStore bool) func([]byte)) *wire {
	t.Helper()
	if change == nil {
		change = func(bool) func([]byte) { return nil }
	}
	config := serverTLS(t)
	return listen(t, func(nc net.Conn, c *call) {
		client, err := answerTLS(nc, config)
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer out.Close()
		store, err := newPeer(out, "")
		if err != nil {
			return
		}
		forward(client, store.Conn, c, change(true), change(false))
	})
}

// kinds returns the kinds of the frames in a stream.
func kinds(stream []byte) (found []byte) {
	for r := bytes.NewReader(stream); ; {
		f, err := readFrame(r)
		if err != nil {
			return found
		}
		found = append(found, f.kind)
	}
}

// TestFrameRelay has a relay between an agent and its store that decrypts and encrypts again. With a secret the relay
// learns no more than the hello, whatever it changes. Without one it reads and rewrites everything, which shows that
// the relay works.
func TestFrameRelay(t *testing.T) {
	t.Parallel()
	_, secretFile := newSecret(t)
	// claimNoSecret clears the first flag of the first frame: hello and challenge begin with it.
	claimNoSecret := func(bool) func([]byte) {
		first := true
		return func(b []byte) {
			if first && len(b) > 5 {
				b[5] &^= 1
			}
			first = false
		}
	}
	for _, tc := range []struct {
		name   string
		change func(bool) func([]byte)
	}{
		{name: "forwards"},
		{name: "claims that neither has a secret", change: claimNoSecret},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, addr := startStore(t, secretFile)
			relay := frameRelay(t, addr, tc.change)
			agent := startAgent(t, "agent", relay.addr, secretFile, "exit 0", "--rdzv-conf=join_timeout=5")
			if code := agent.code(); code == 0 {
				t.Error("the agent ended with 0")
			}
			if !strings.Contains(agent.text(), "shared secret") {
				t.Error("the agent does not say that the secrets differ")
			}
			calls := relay.all()
			if len(calls) == 0 {
				t.Fatal("the agent did not connect")
			}
			for _, c := range calls {
				if k := kinds(c.sent()); !bytes.Equal(k, []byte{kindHello}) && !bytes.Equal(k, []byte{kindHello, kindRefusal}) {
					t.Errorf("the relay got frames %v of the agent, want the hello and perhaps a refusal", k)
				}
			}
		})
	}
	t.Run("without a secret", func(t *testing.T) {
		t.Parallel()
		_, addr := startStore(t, "")
		const is, becomes = `"GlobalWorldSize":2`, `"GlobalWorldSize":7`
		relay := frameRelay(t, addr, func(bool) func([]byte) {
			return func(b []byte) { copy(b, bytes.ReplaceAll(b, []byte(is), []byte(becomes))) }
		})
		const script = "echo the world has $WORLD_SIZE"
		a := startAgent(t, "agent 0", relay.addr, "", script)
		b := startAgent(t, "agent 1", addr, "", script)
		if a.code() != 0 || b.code() != 0 {
			t.Error("the job failed")
		}
		if !strings.Contains(a.text(), "the world has 7") {
			t.Error("the relay has not changed what the leader assigned")
		}
	})
}
