package elastic

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/internal/peeruid"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

// foreigner is a user that this machine does not need to know.
const foreigner = 65533

// dialAsForeigner connects with a socket of another user.
func dialAsForeigner(t *testing.T, addr net.Addr) (c net.Conn) {
	t.Helper()
	testenv.AsUser(t, foreigner, func() {
		var err error
		if c, err = net.Dial("tcp", addr.String()); err != nil {
			t.Error(err)
		}
	})
	if c == nil {
		t.FailNow()
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// pingAsWorker sends what a worker of torch 2.x sends first, and returns how many bytes come back.
func pingAsWorker(c net.Conn) int {
	// VALIDATE with its magic number, and PING with a number that comes back.
	_, _ = c.Write([]byte{0, 0xce, 0xf7, 0x85, 0x3c, 13, 1, 2, 3, 4})
	n, _ := io.ReadFull(c, make([]byte, 4))
	return n
}

// TestForeignWorker connects to worker stores as another user. A refused connection gets no byte.
func TestForeignWorker(t *testing.T) {
	for _, tt := range []struct {
		name   string
		stores WorkerStores
		serves bool
	}{
		{"one node", WorkerStores{Addr: "127.0.0.1", OneNode: true}, false},
		{"one node, at every address", WorkerStores{Addr: "0.0.0.0", OneNode: true}, false},
		{"one node that serves this user", WorkerStores{
			Addr: "127.0.0.1", OneNode: true, Users: &StoreUsers{IDs: []int{1, foreigner}},
		}, true},
		{"one node that serves another one", WorkerStores{
			Addr: "127.0.0.1", OneNode: true, Users: &StoreUsers{IDs: []int{1}},
		}, false},
		{"one node that serves everybody", WorkerStores{
			Addr: "127.0.0.1", OneNode: true, Users: &StoreUsers{Anybody: true},
		}, true},
		{"several nodes on this machine", WorkerStores{Addr: "127.0.0.1"}, false},
		{"several machines", WorkerStores{Addr: "0.0.0.0"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			s, offer, err := tt.stores.open(t.Context(), rdzv.Member{}, nil, zerolog.New(&log))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.close() }()
			addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: s.Port()}
			if served := pingAsWorker(dialAsForeigner(t, addr)) > 0; served != tt.serves {
				t.Errorf("another user's worker is served: %v, want %v", served, tt.serves)
			}
			own, err := net.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			defer own.Close()
			if n := pingAsWorker(own); n != 4 {
				t.Errorf("this user's own worker got %d bytes", n)
			}
			offer.Addrs = []string{"127.0.0.1"}
			if _, err := reach(t.Context(), offer); err != nil {
				t.Error(err)
			}
			if err := s.close(); err != nil { // the server's goroutines have ended
				t.Error(err)
			}
			const line = "its process is user 65533's, and the store serves user"
			if warned := strings.Contains(log.String(), line); warned == tt.serves {
				t.Errorf("log: %s", &log)
			}
			if tt.stores.Users != nil {
				if err := tt.stores.Users.Refused(); (err == nil) != tt.serves {
					t.Errorf("the last refusal is %v", err)
				}
			}
		})
	}
}

// Agents of another user get no answer from a store that only this machine can reach.
func TestForeignAgent(t *testing.T) {
	for _, tt := range []struct {
		name, listen string
		serves       bool
	}{
		{"a loopback address", "127.0.0.1:0", false},
		{"every address", ":0", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", tt.listen)
			if err != nil {
				t.Fatal(err)
			}
			a := &C10d{RunID: uniqueRunID(t), Version: "test", TTL: time.Minute, Ports: []int{portOf(ln)}, Logger: zerolog.Nop()}
			if _, err := a.hostOn(t.Context(), ln, nil, 0); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = a.Close(t.Context(), true) }()
			addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: portOf(ln)}
			for _, foreign := range []bool{true, false} {
				_, err = coord.Probe(t.Context(), coord.DialOptions{
					Addr: addr.String(), Version: "test", RunID: a.RunID,
					Conn: func(context.Context) (net.Conn, error) {
						if foreign {
							return dialAsForeigner(t, addr), nil
						}
						return net.Dial("tcp", addr.String())
					},
				})
				if served := err == nil; served != (tt.serves || !foreign) {
					t.Errorf("foreign %v: %v", foreign, err)
				}
			}
		})
	}
}

// An agent without a secret uses no store of another user at a loopback address, which anybody may have taken first.
func TestForeignStore(t *testing.T) {
	testenv.Root(t)
	secret := bytes.Repeat([]byte("secret"), 6)
	for _, tt := range []struct {
		name   string
		users  *StoreUsers
		secret []byte
		err    string
	}{
		{name: "without a secret", err: "the store there is user 65533's, and this agent accepts one of user 0; " +
			"--store-users=65533 accepts this one too, and so does a secret that both know"},
		{name: "with a secret", secret: secret},
		{name: "a user who is accepted", users: &StoreUsers{IDs: []int{foreigner}}},
		{name: "everybody is accepted", users: &StoreUsers{Anybody: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := coord.NewServer(coord.ServerOptions{Version: "test", RunID: "run", Secret: tt.secret})
			defer server.Close()
			listening := make(chan net.Listener)
			var serving sync.WaitGroup
			serving.Go(func() {
				testenv.AsUser(t, foreigner, func() {
					ln, err := net.Listen("tcp", "127.0.0.1:0")
					listening <- ln
					for err == nil {
						var c net.Conn
						if c, err = ln.Accept(); err == nil { // the accepted socket belongs to who accepts it
							server.ServeConn(c)
						}
					}
				})
			})
			ln := <-listening
			defer serving.Wait()
			defer ln.Close()
			client := &C10d{RunID: "run", Version: "test", Secret: tt.secret, Users: tt.users, TTL: time.Minute}
			e := machine.Endpoint{Host: "127.0.0.1", Port: portOf(ln)}
			e.Addrs = append(e.Addrs, ln.Addr().(*net.TCPAddr).AddrPort().Addr())
			session, tried, _ := client.dial(t.Context(), e)
			if session != nil {
				_ = session.Close(t.Context())
			}
			err := errors.Join(tried...)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("%v, want %s", err, tt.err)
			}
		})
	}
}

// A store that only this machine can reach does not open if the kernel does not report who owns a connection.
func TestPeerUsersUnknown(t *testing.T) {
	blind := &StoreUsers{}
	blind.once.Do(func() { blind.err = errors.New("sock_diag: permission is denied") })
	var unknown *PeerUserError
	s, _, err := WorkerStores{Addr: "127.0.0.1", Users: blind}.open(t.Context(), rdzv.Member{}, nil, zerolog.Nop())
	if s != nil || !errors.As(err, &unknown) {
		t.Errorf("the worker store: %v", err)
	}
	ln := listenAt(t, 0)
	a := &C10d{RunID: uniqueRunID(t), Version: "test", TTL: time.Minute, Users: blind, Logger: zerolog.Nop()}
	if _, err := a.hostOn(t.Context(), ln, nil, 0); !errors.As(err, &unknown) || !permanent(err) {
		t.Errorf("the agents' store: %v", err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the port is still open: %v", err)
	}
	const want = "the kernel does not tell which user's process connects to a store on this machine: " +
		"sock_diag: permission is denied; --store-users=any serves every user"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	blind.Anybody = true
	s, _, err = WorkerStores{Addr: "127.0.0.1", Users: blind}.open(t.Context(), rdzv.Member{}, nil, zerolog.Nop())
	if err != nil {
		t.Errorf("everybody is served: %v", err)
	}
	_ = s.close()
}

func TestAdmit(t *testing.T) {
	self, root := os.Geteuid(), 0
	named := &StoreUsers{IDs: []int{70001, 70002}}
	for _, tt := range []struct {
		name  string
		users *StoreUsers
		user  int
		err   error
		want  string // part of the error; empty: admitted
	}{
		{name: "this user", users: &StoreUsers{}, user: self},
		{name: "root", users: &StoreUsers{}, user: root},
		{name: "a named user", users: named, user: 70002},
		{name: "another user", users: named, user: 70003, want: "70001 and 70002; --store-users=70001,70002,70003 serves this one too"},
		{name: "a client that has gone", users: named, err: peeruid.ErrEnded, want: "EOF"},
		{name: "another machine", users: named, err: peeruid.ErrElsewhere, want: "its process is on another machine, or in a " +
			"container with a network of its own; --store-users=any serves every user"},
		{name: "a user of another namespace", users: named, err: peeruid.ErrUnmapped, want: "--store-users=any serves every user"},
		{name: "a failure", users: named, err: syscall.ENOBUFS, want: "find the user of the connection: no buffer space"},
	} {
		err := tt.users.admit(tt.user, tt.err)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if tt.err != nil && tt.want != "EOF" && !errors.Is(err, tt.err) {
			t.Errorf("%s: %v does not wrap %v", tt.name, err, tt.err)
		}
	}
}
