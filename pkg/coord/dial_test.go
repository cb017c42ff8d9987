package coord

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

func TestRefusals(t *testing.T) {
	secret := []byte("secret")
	for _, tc := range []struct {
		name   string
		server ServerOptions
		client DialOptions
		reason Reason
		line   string
	}{
		{
			name: "alike", server: ServerOptions{Version: "v1", RunID: "a", Secret: secret},
			client: DialOptions{Version: "v1", RunID: "a", Secret: secret},
		},
		{name: "any", client: DialOptions{Version: "v1", RunID: "a"}},
		{name: "anything", server: ServerOptions{Version: "v1", RunID: "a"}},
		{
			name: "version", server: ServerOptions{Version: "v2"}, client: DialOptions{Version: "v1"}, reason: ReasonVersion,
			line: "the agent is elasticrun v1 and the store is elasticrun v2: run the same version on all nodes",
		},
		{
			name: "run id", server: ServerOptions{RunID: "a"}, client: DialOptions{RunID: "b"}, reason: ReasonRunID,
			line: `the store belongs to another job: its run id is "a" and the agent's is "b"; give this node the same --rdzv-id, or each job its own endpoint`,
		},
		{
			name: "wrong secret", server: ServerOptions{Secret: secret}, client: DialOptions{Secret: []byte("other")},
			reason: ReasonSecret, line: "the store's shared secret differs from the agent's: give both the same secret, by --rdzv-secret-file=FILE or PET_RDZV_SECRET",
		},
		{
			name: "no secret", server: ServerOptions{Secret: secret}, reason: ReasonSecret,
			line: "the store has a shared secret and the agent has none: give the agent the store's secret, by --rdzv-secret-file=FILE or PET_RDZV_SECRET",
		},
		{
			name: "needless secret", client: DialOptions{Secret: secret}, reason: ReasonSecret,
			line: "the agent has a shared secret and the store has none: give both the same secret, by --rdzv-secret-file=FILE or PET_RDZV_SECRET",
		},
		{
			// A client without the secret must not learn the store's run id.
			name: "secret first", server: ServerOptions{Secret: secret, RunID: "a"},
			client: DialOptions{Secret: []byte("other"), RunID: "b"},
			reason: ReasonSecret, line: "the store's shared secret differs from the agent's: give both the same secret, by --rdzv-secret-file=FILE or PET_RDZV_SECRET",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, addr := startServer(t, tc.server)
			tc.client.Addr = addr
			c, err := Dial(t.Context(), tc.client)
			if tc.reason == 0 {
				if err != nil {
					t.Fatal(err)
				}
				closeStore(t, c)
				return
			}
			var refused *RefusedError
			if !errors.As(err, &refused) || refused.Reason != tc.reason || refused.Message != tc.line ||
				errors.Is(err, ErrUnavailable) {
				t.Errorf("%v, want %v: %s", err, tc.reason, tc.line)
			}
			for end := time.Now().Add(testTimeout); s.Stats().Refused != 1; runtime.Gosched() { // the client may be first
				if time.Now().After(end) {
					t.Fatalf("stats %+v, want one refusal", s.Stats())
				}
			}
			if stats := s.Stats(); stats.Sessions != 0 {
				t.Errorf("stats %+v", stats)
			}
		})
	}
}

// listen calls handle for each connection until the test ends, and then closes the connection.
func listen(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	return testenv.Serve(t, func(nc net.Conn) {
		handle(nc)
		nc.Close()
	})
}

// TestObstacles connects to servers that are not stores.
func TestObstacles(t *testing.T) {
	for _, tc := range []struct {
		name     string
		addr     func() string
		obstacle Obstacle
		passes   bool
		line     string
	}{
		{
			name: "a torch TCPStore", obstacle: ObstacleTorch, line: "a torch TCPStore is there",
			addr: func() string {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				s := tcpstore.NewServer(tcpstore.ServerOptions{})
				done := make(chan struct{})
				go func() { defer close(done); _ = s.Serve(l) }()
				t.Cleanup(func() { s.Close(); <-done })
				return l.Addr().String()
			},
		},
		{
			name: "HTTP", obstacle: ObstacleForeign, line: "an HTTP server is there, not a store",
			addr: func() string {
				s := httptest.NewServer(http.NotFoundHandler())
				t.Cleanup(s.Close)
				return s.Listener.Addr().String()
			},
		},
		{
			name: "TLS", obstacle: ObstacleForeign, line: "a TLS server is there, not a store",
			addr: func() string {
				return listen(t, func(nc net.Conn) {
					io.WriteString(nc, "\x15\x03\x01\x00\x02\x02\x46")
					nc.Read(make([]byte, 99))
				})
			},
		},
		{
			name: "SSH", obstacle: ObstacleForeign, line: "an SSH server is there, not a store",
			addr: func() string {
				return listen(t, func(nc net.Conn) { io.WriteString(nc, "SSH-2.0-OpenSSH_9.6\r\n"); nc.Read(make([]byte, 99)) })
			},
		},
		{
			name: "something", obstacle: ObstacleForeign, line: `a server that answers "\x00\x01\x1b[2J" is there, not a store`,
			addr: func() string {
				return listen(t, func(nc net.Conn) { io.WriteString(nc, "\x00\x01\x1b[2J"); nc.Read(make([]byte, 99)) })
			},
		},
		{
			name: "half a store", obstacle: ObstacleForeign, line: "does not follow the agents' protocol",
			addr: func() string {
				return listen(t, func(nc net.Conn) {
					nc.Write(append(appendPreamble(nil), "neither TLS"...))
					nc.Read(make([]byte, 99))
				})
			},
		},
		{
			name: "an end", obstacle: ObstacleClosed, passes: true, line: "it closed the connection without an answer",
			addr: func() string { return listen(t, func(nc net.Conn) { nc.Read(make([]byte, 99)) }) },
		},
		{
			name: "nobody", obstacle: ObstacleRefused, passes: true, line: "nobody listens there",
			addr: func() string {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				return l.Addr().String()
			},
		},
		{
			name: "no address", obstacle: ObstacleConnect, passes: true, line: "no connection is possible",
			addr: func() string { return "127.0.0.1:port-that-is-none" },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Dial(t.Context(), DialOptions{Addr: tc.addr()})
			checkObstacle(t, err, tc.obstacle, tc.passes, tc.line)
		})
	}
}

// lateListener closes its first connection, like a proxy whose store has not started.
type lateListener struct {
	net.Listener
	closedOne bool
}

func (l *lateListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err == nil && !l.closedOne {
		l.closedOne = true
		nc.Close()
		return l.Listener.Accept()
	}
	return nc, err
}

// TestStoreBeginsBehindProxy starts a store after the agent's connection was closed and before the agent checks for a
// TCPStore. The store answers a TCPStore's questions but must not be taken for one.
func TestStoreBeginsBehindProxy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	agents := NewServer(ServerOptions{})
	front := tcpstore.NewServer(tcpstore.ServerOptions{Agents: agents.ServeConn})
	done := make(chan struct{})
	go func() { defer close(done); _ = front.Serve(&lateListener{Listener: l}) }()
	t.Cleanup(func() { agents.Close(); front.Close(); <-done })

	_, err = Dial(t.Context(), DialOptions{Addr: l.Addr().String()})
	checkObstacle(t, err, ObstacleClosed, true, "it closed the connection without an answer")
	dial(t, DialOptions{Addr: l.Addr().String()})
}

func checkObstacle(t *testing.T, err error, want Obstacle, passes bool, line string) {
	t.Helper()
	var obstacle *DialError
	if !errors.As(err, &obstacle) || obstacle.Obstacle != want ||
		errors.Is(err, ErrUnavailable) != passes || !strings.Contains(err.Error(), line) {
		t.Errorf("%v, want obstacle %d, %q", err, want, line)
	}
}

// secureStore returns a server's connection after the TLS handshake, for tests that answer frames themselves.
func secureStore(nc net.Conn) *conn {
	c := newConn(NewServer(ServerOptions{}), nc)
	if err := c.secure(); err != nil {
		return nil
	}
	return c
}

// TestSilentObstacles connects to servers that do not answer.
func TestSilentObstacles(t *testing.T) {
	for _, tc := range []struct {
		name     string
		conn     func(context.Context) (net.Conn, error)
		obstacle Obstacle
		line     string
		after    time.Duration
	}{
		{
			name: "connect", obstacle: ObstacleTimeout, line: "nothing answers there", after: 5 * time.Second,
			conn: func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
		},
		{
			name: "hello", obstacle: ObstacleSilent, line: "has not answered for 5s",
			after: 6 * time.Second, // includes the questions to a TCPStore
			conn: func(context.Context) (net.Conn, error) {
				here, there := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, there) }()
				return here, nil
			},
		},
		{
			name: "preamble", obstacle: ObstacleSilent, line: "has not answered for 5s", after: 5 * time.Second,
			conn: func(context.Context) (net.Conn, error) {
				here, there := net.Pipe()
				go func() {
					in := bufio.NewReader(there)
					in.Discard(preambleSize)
					there.Write(appendPreamble(nil))
					io.Copy(io.Discard, in)
				}()
				return here, nil
			},
		},
		{
			name: "challenge", obstacle: ObstacleSilent, line: "has not answered for 5s", after: 5 * time.Second,
			conn: func(context.Context) (net.Conn, error) {
				here, there := net.Pipe()
				go func() { //nolint:contextcheck // the store's side ends with the connection
					c := secureStore(there)
					if c == nil {
						return
					}
					readFrame(c.nc, maxHandshake, make([]byte, frameHeader))
					c.nc.Write(challenge{}.append(nil))
					io.Copy(io.Discard, c.nc)
				}()
				return here, nil
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				_, err := Dial(t.Context(), DialOptions{Addr: "pipe", Conn: tc.conn})
				checkObstacle(t, err, tc.obstacle, true, tc.line)
				if took := time.Since(begin); took != tc.after {
					t.Errorf("it took %v, want %v", took, tc.after)
				}
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, os.ErrProcessDone)
				defer cancel()
				begin = time.Now()
				_, err = Dial(ctx, DialOptions{Addr: "pipe", Conn: tc.conn})
				if took := time.Since(begin); took != time.Second || !errors.Is(err, ErrUnavailable) {
					t.Errorf("with a second it took %v: %v", took, err)
				}
			})
		})
	}
}

// TestOtherProtocol lets a client and a server meet a future version of the protocol.
func TestOtherProtocol(t *testing.T) {
	_, addr := startServer(t, ServerOptions{})
	nc := connect(t, addr)
	nc.Write([]byte(magic + "\x00\x04whatever they will say"))
	got, err := io.ReadAll(nc)
	line := "the agent speaks version 4 of the agents' protocol and the store speaks version 3: " +
		"run the same elasticrun on all nodes"
	if want := string(appendRefusal(appendPreamble(nil), ReasonProtocol, line)); string(got) != want {
		t.Errorf("the server says %q, %v", got, err)
	}

	future := magic + "\x00\x04"
	for _, answer := range []string{
		string(appendRefusal([]byte(future), ReasonProtocol, line)),
		future + "something else",
	} {
		addr := listen(t, func(nc net.Conn) {
			nc.Read(make([]byte, 99))
			io.WriteString(nc, answer)
		})
		_, err := Dial(t.Context(), DialOptions{Addr: addr})
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Reason != ReasonProtocol || !strings.Contains(err.Error(), "protocol") {
			t.Errorf("the client says %v", err)
		}
	}
}

// TestStoreWithoutSecret answers a client as a store without the secret would. The client leaves without giving a proof
// of its own.
func TestStoreWithoutSecret(t *testing.T) {
	for name, proof := range map[string][]byte{"none": nil, "any number": make([]byte, 32)} {
		t.Run(name, func(t *testing.T) {
			got := make(chan kind, 1)
			addr := listen(t, func(nc net.Conn) {
				c := secureStore(nc)
				readFrame(c.nc, maxHandshake, make([]byte, frameHeader))
				c.nc.Write(challenge{secret: true, instance: "i", proof: proof}.append(nil))
				k, _, _ := readFrame(c.nc, maxHandshake, make([]byte, frameHeader))
				got <- k
			})
			_, err := Dial(t.Context(), DialOptions{Addr: addr, Secret: []byte("secret")})
			var refused *RefusedError
			if !errors.As(err, &refused) || refused.Reason != ReasonSecret {
				t.Errorf("the client says %v", err)
			}
			if k := <-got; k != kindRefusal {
				t.Errorf("the client sends a frame of kind %d, want a refusal", k)
			}
		})
	}
}
