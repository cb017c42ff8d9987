package elastic

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
)

// storePreamble is what a store sends first.
const storePreamble = "\xe5elrun\r\n\x00\x03"

// stallAfterTLS returns a fake store that completes the TLS handshake, reads reads bytes and says nothing.
func stallAfterTLS(t *testing.T, reads int) func(net.Conn) {
	t.Helper()
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{testenv.NewAuthority(t, "fake").Pair(t, "fake store")},
	}
	return func(nc net.Conn) {
		defer nc.Close()
		all := &bufferedConn{nc, bufio.NewReader(nc)} // which takes what the client writes at once
		_, _ = io.ReadFull(all, make([]byte, len(storePreamble)))
		_, _ = io.WriteString(nc, storePreamble)
		secure := tls.Server(all, config)
		if secure.Handshake() == nil {
			_, _ = io.CopyN(io.Discard, secure, int64(reads))
		}
		_, _ = io.Copy(io.Discard, nc)
	}
}

type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *bufferedConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// busyForever is a fake store that makes its clients wait for their turn.
func busyForever(nc net.Conn) {
	defer nc.Close()
	go func() { _, _ = io.Copy(io.Discard, nc) }()
	_, err := io.WriteString(nc, storePreamble)
	for err == nil {
		_, err = nc.Write([]byte{0})
		<-time.After(time.Second)
	}
}

// TestFakeCandidates has fake stores at the ports before that of the run's store. However late in the handshake they
// stall, the agent finds its store.
func TestFakeCandidates(t *testing.T) {
	silent := func(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) }
	for _, tt := range []struct {
		name  string
		fakes []func(net.Conn)
		took  time.Duration
	}{
		{"silent", []func(net.Conn){silent, silent, silent}, 18 * time.Second}, // with a second each to ask for torch's store
		{"after TLS", []func(net.Conn){stallAfterTLS(t, 0), stallAfterTLS(t, 1<<20)}, 10 * time.Second},
		{"when the proof is due", []func(net.Conn){stallAfterTLS(t, 10)}, 5 * time.Second},
		{"always busy", []func(net.Conn){busyForever, busyForever}, 2 * firstMaxWait},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &fakeNetwork{stores: map[int]*coord.Server{9: storeOf(t, "mine")}, fakes: map[int]func(net.Conn){}}
				var ports []int
				for i, fake := range tt.fakes {
					ports = append(ports, i+1)
					n.fakes[i+1] = fake
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				began := time.Now()
				store, err := n.client(zerolog.Nop(), append(ports, 9)...).Open(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < tt.took || took > tt.took+2*time.Second {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
				_ = store.Close(t.Context())
				<-time.After(2 * time.Second) // the fake stores end
			})
		})
	}
}

// TestSlowCandidate has one candidate that is always busy, and nobody at the other. Each attempt waits longer for it.
func TestSlowCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := make(chan time.Duration, 10)
		n := &fakeNetwork{fakes: map[int]func(net.Conn){1: func(nc net.Conn) {
			began := time.Now()
			busyForever(nc)
			waits <- time.Since(began).Round(10 * time.Second)
		}}}
		ctx, cancel := context.WithTimeout(t.Context(), 8*firstMaxWait)
		defer cancel()
		if _, err := n.client(zerolog.Nop(), 1, 2).Open(ctx); err == nil {
			t.Error("a store was found")
		}
		for _, want := range []time.Duration{firstMaxWait, 2 * firstMaxWait, 4 * firstMaxWait} {
			if got := <-waits; got != want {
				t.Errorf("the agent waited %v, want %v", got, want)
			}
		}
		<-time.After(2 * time.Second) // the fake store ends
	})
}
