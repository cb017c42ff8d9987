package tcpstore

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// TestAgentsShareThePort checks that Agents receives a connection, with all its bytes, if it begins as no torch
// connection does.
func TestAgentsShareThePort(t *testing.T) {
	agents := make(chan net.Conn, 1)
	s, addr := startServer(t, ServerOptions{Agents: func(nc net.Conn) { agents <- nc }})
	worker := dial(t, addr, ProtocolV2)
	worker.ping()

	agent, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	hello := append([]byte{0x80}, bytes.Repeat([]byte("hello"), 30_000)...) // more than one read takes
	sent := make(chan error, 1)
	go func() {
		_, err := agent.Write(hello)
		sent <- err
	}()
	nc := <-agents
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(hello))
	if _, err := io.ReadFull(nc, got); err != nil || !bytes.Equal(got, hello) {
		t.Errorf("the agent's bytes did not come as they were sent: %v", err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if _, err := nc.Write([]byte("welcome")); err != nil {
		t.Error(err)
	}
	answer := make([]byte, 7)
	if _, err := io.ReadFull(agent, answer); err != nil || string(answer) != "welcome" {
		t.Errorf("answer %q, %v", answer, err)
	}
	if nc.RemoteAddr().String() != agent.LocalAddr().String() {
		t.Errorf("the agent's address is %v, want %v", nc.RemoteAddr(), agent.LocalAddr())
	}

	worker.ping()
	if stats := s.Stats(); stats.Open != 1 || stats.Accepted != 2 || len(stats.Refused) != 0 {
		t.Errorf("stats: %+v", stats)
	}
	s.Close() // must leave the agent's connection open
	if _, err := nc.Write([]byte("still here")); err != nil {
		t.Error(err)
	}
}

// TestAccept checks that Accept decides once about each connection, before Agents, and before a byte is answered.
func TestAccept(t *testing.T) {
	verdicts := []error{errors.New("user 7"), io.EOF, os.NewSyscallError("socket", syscall.EMFILE), nil, nil}
	called := 0
	agents := make(chan net.Conn, 1)
	s, addr := startServer(t, ServerOptions{
		Accept: func(net.Conn) error {
			called++
			return verdicts[called-1]
		},
		Agents: func(nc net.Conn) { agents <- nc },
	})
	for range 2 { // refused, and ended by the client
		c := dial(t, addr, protocolUnknown)
		_, _ = c.nc.Write(handshake)
		c.expectClosed()
	}
	worker := dial(t, addr, ProtocolV2) // admitted after no file could be opened
	worker.ping()
	agent := dial(t, addr, protocolUnknown)
	agent.write([]byte{0x80})
	(<-agents).Close()
	stats := s.Stats()
	if stats.Open != 1 || stats.Accepted != 4 || stats.Refused[ReasonNotAdmitted] != 1 || called != len(verdicts) {
		t.Errorf("stats: %+v, after %d calls", stats, called)
	}
}

// Connections that are not admitted cause one warning per minute. Every other Reason causes one warning in all.
func TestRefusalWarnings(t *testing.T) {
	var log bytes.Buffer
	l := stepLoop(t, ServerOptions{Logger: zerolog.New(&log).Level(zerolog.WarnLevel)})
	refused := func(r Reason) {
		l.logRefusal(&net.TCPAddr{}, refuse(r, "user 7"))
	}
	for range 3 {
		refused(ReasonNotAdmitted)
		refused(ReasonSilent)
	}
	l.notAdmitted = l.notAdmitted.Add(-notAdmittedPause)
	for range 3 {
		refused(ReasonNotAdmitted)
	}
	if n := strings.Count(log.String(), string(ReasonNotAdmitted)); n != 2 {
		t.Errorf("%d warnings about connections that were not admitted, want 2:\n%s", n, &log)
	}
	if n := strings.Count(log.String(), string(ReasonSilent)); n != 1 {
		t.Errorf("%d warnings about silent connections, want 1:\n%s", n, &log)
	}
}

func TestServeRejectsNonSockets(t *testing.T) {
	theirs, ours := net.Pipe()
	defer ours.Close()
	l := listen(t)
	s := NewServer(ServerOptions{})
	defer s.Close()
	if err := s.Serve(&oneConnListener{l, theirs}); err == nil {
		t.Error("Serve took a connection that is no socket")
	}
	if _, err := ours.Write([]byte{0}); err == nil {
		t.Error("Serve left that connection open")
	}
}

// oneConnListener accepts one connection.
type oneConnListener struct {
	net.Listener
	nc net.Conn
}

func (l *oneConnListener) Accept() (net.Conn, error) { return l.nc, nil }
