package coord

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// record returns a TLS record's header that claims size bytes, and as many bytes as given.
func record(size uint16, given int) []byte {
	b := binary.BigEndian.AppendUint16([]byte{22, 3, 1}, size)
	return append(b, make([]byte, given)...)
}

// later returns an encrypted record.
func later(size uint16, given int) []byte {
	b := record(size, given)
	b[0] = 23
	return b
}

func TestRecordLimit(t *testing.T) {
	for _, tt := range []struct {
		name   string
		stream []byte
		ok     bool
	}{
		{"none", nil, true},
		{"part of a header", []byte{22, 3}, true},
		{"records", append(record(10, 10), later(20, 20)...), true},
		{"up to the limit", record(95, 95), true},
		{"more than the limit", append(record(95, 95), 22), false},
		{"a claim of more than the limit", record(96, 0), false},
		{"a later claim", append(record(50, 50), later(41, 0)...), false},
		{"a later claim that fits", append(record(50, 50), later(40, 0)...), true},
		{"a second record in the clear", append(record(10, 10), record(20, 20)...), false},
		{"the largest claim", record(65535, 0), false},
	} {
		for _, chunk := range []int{1, 3, 1000} {
			if err := takeAll(&recordLimit{left: 100}, tt.stream, chunk); (err == nil) != tt.ok {
				t.Errorf("%s, in pieces of %d bytes: %v", tt.name, chunk, err)
			}
		}
	}
}

func takeAll(l *recordLimit, stream []byte, chunk int) error {
	for len(stream) > 0 {
		n := min(chunk, len(stream))
		if err := l.take(stream[:n]); err != nil {
			return err
		}
		stream = stream[n:]
	}
	return nil
}

// FuzzRecordLimit checks that the result does not depend on how a stream arrives, and that no accepted stream is longer
// than the limit or claims more.
func FuzzRecordLimit(f *testing.F) {
	f.Add(append(record(10, 10), later(200, 0)...), uint8(3))
	f.Add(append(record(10, 10), record(20, 0)...), uint8(2))
	f.Add(record(96, 50), uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, chunk uint8) {
		const limit = 100
		whole, pieces := &recordLimit{left: limit}, &recordLimit{left: limit}
		err := takeAll(pieces, stream, int(chunk)+1)
		if wholeErr := takeAll(whole, stream, len(stream)); (err == nil) != (wholeErr == nil) {
			t.Fatalf("in pieces: %v, at once: %v", err, wholeErr)
		}
		if err != nil {
			return
		}
		if *whole != *pieces {
			t.Fatalf("in pieces: %+v, at once: %+v", pieces, whole)
		}
		if len(stream)+whole.left != limit || whole.body > whole.left {
			t.Fatalf("%d bytes were accepted: %+v", len(stream), whole)
		}
	})
}

// TestRefusalOfAnotherVersionArrives connects a client of protocol 2, which sends its hello at once. The store closes
// the connection without reading the hello. The client must still be able to read the whole refusal.
func TestRefusalOfAnotherVersionArrives(t *testing.T) {
	_, addr := startServer(t, ServerOptions{})
	for range 50 {
		nc := connect(t, addr)
		first := binary.BigEndian.AppendUint16([]byte(magic), 2)
		if _, err := nc.Write(append(first, bytes.Repeat([]byte("hello"), 100)...)); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Millisecond) // the client reads late
		got, err := io.ReadAll(nc)
		nc.Close()
		if err != nil || len(got) < preambleSize {
			t.Fatalf("got %q: %v", got, err)
		}
		k, body, err := readFrame(bytes.NewReader(got[preambleSize:]), maxHandshake, make([]byte, frameHeader))
		if err != nil || k != kindRefusal {
			t.Fatalf("got %q: %v", got, err)
		}
		reason, message, err := decodeRefusal(body)
		if err != nil || reason != ReasonProtocol || !strings.Contains(message, "the agent speaks version 2") {
			t.Fatalf("refusal %v %q: %v", reason, message, err)
		}
	}
}

// TestTurns lets a store be busy with the handshakes of others for longer than the time limits of both sides. Clients
// wait, get a session in the end, and connect only once.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(ServerOptions{})
		defer s.Close()
		for range cap(s.turns) {
			s.turns <- struct{}{}
		}
		began := time.Now()
		var clients sync.WaitGroup
		for range 3 {
			clients.Go(func() { dial(t, DialOptions{Addr: "pipe", Conn: pipeTo(s), TTL: time.Hour}) })
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := Dial(ctx, DialOptions{Addr: "pipe", Conn: pipeTo(s)})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 20*time.Second {
			t.Errorf("a client that does not wait: %v after %v", err, time.Since(began))
		}
		<-time.After(40 * time.Second)
		for range cap(s.turns) {
			<-s.turns
		}
		clients.Wait()
		if took := time.Since(began); took != time.Minute || s.Stats().Accepted != 4 {
			t.Errorf("%d connections in %v", s.Stats().Accepted, took)
		}
		if len(s.turns) != 0 {
			t.Errorf("%d turns do not end", len(s.turns))
		}
	})
}

func pipeTo(s *Server) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		s.ServeConn(there)
		return here, nil
	}
}

// TestTurnIsNotHeld connects clients that send a record with only a part of a ClientHello. They must not keep the
// turns.
func TestTurnIsNotHeld(t *testing.T) {
	s, addr := startServer(t, ServerOptions{HandshakeTimeout: time.Minute})
	for range 2 * cap(s.turns) {
		nc := connect(t, addr)
		nc.Write(append(appendPreamble(nil), 22, 3, 1, 0, 5, 1, 0, 0, 200, 3))
	}
	began := time.Now()
	dial(t, DialOptions{Addr: addr})
	if took := time.Since(began); took > 30*time.Second { // they have a minute
		t.Errorf("an agent joined after %v", took)
	}
}

// TestComputingInTurn connects clients whose ClientHello is not complete in the first record, or forces a
// HelloRetryRequest. The store would compute the rest of their handshakes outside of the turns, so it ends their
// connections.
func TestComputingInTurn(t *testing.T) {
	split := func(b []byte) []byte { // one record as two
		size := binary.BigEndian.Uint16(b[3:])
		rest := append(binary.BigEndian.AppendUint16([]byte{22, 3, 1}, size-50), b[5+50:]...)
		return append(append(binary.BigEndian.AppendUint16([]byte{22, 3, 1}, 50), b[5:5+50]...), rest...)
	}
	for _, tt := range []struct {
		name   string
		curves []tls.CurveID
		change func([]byte) []byte
		ok     bool
	}{
		{"as the agents'", []tls.CurveID{tls.CurveP256}, nil, true},
		{"two records", []tls.CurveID{tls.CurveP256}, split, false},
		{"a key for another key exchange", []tls.CurveID{tls.X25519, tls.CurveP256}, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, addr := startServer(t, ServerOptions{})
			nc := connect(t, addr)
			below := &preambleConn{Conn: nc, unsent: appendPreamble(nil), check: func() (byte, error) {
				got := make([]byte, preambleSize+1)
				_, err := io.ReadFull(nc, got)
				return got[preambleSize], err
			}}
			config := baseConfig()
			config.InsecureSkipVerify, config.CurvePreferences = true, tt.curves
			client := tls.Client(&changedHello{below, tt.change}, config)
			if err := client.Handshake(); (err == nil) != tt.ok {
				t.Errorf("the handshake: %v", err)
			}
			if !tt.ok {
				waitMalformed(t, s, 1, 0)
			}
		})
	}
}

// changedHello changes what is written first.
type changedHello struct {
	net.Conn
	change func([]byte) []byte
}

func (c *changedHello) Write(b []byte) (int, error) {
	if c.change == nil {
		return c.Conn.Write(b)
	}
	_, err := c.Conn.Write(c.change(b))
	c.change = nil
	return len(b), err
}
