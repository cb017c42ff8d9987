package coord

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
)

// TestDialMember checks that a member's connection is handed over, carries data both ways, and outlives the server.
func TestDialMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := make(chan net.Conn, 1)
		secret := []byte("a secret of the group")
		s := NewServer(ServerOptions{Secret: secret, RunID: "run", OnMember: func(nc net.Conn) { members <- nc }})
		way := &pipeNetwork{server: s}
		here, err := DialMember(t.Context(), DialOptions{Addr: "pipe", Conn: way.dial, Secret: secret, RunID: "run"})
		if err != nil {
			t.Fatal(err)
		}
		defer here.Close()
		there := <-members
		defer there.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for _, ends := range [][2]net.Conn{{here, there}, {there, here}} {
			go func() { _, _ = ends[0].Write([]byte("hello")) }()
			got := make([]byte, 5)
			if _, err := io.ReadFull(ends[1], got); err != nil || string(got) != "hello" {
				t.Errorf("read %q: %v", got, err)
			}
		}
	})
}

// TestDialMemberRefused checks who is not a member.
func TestDialMemberRefused(t *testing.T) {
	secret := []byte("a secret of the group")
	onMember := func(nc net.Conn) {
		t.Error("somebody else counts as a member")
		nc.Close()
	}
	for name, c := range map[string]struct {
		server ServerOptions
		client DialOptions
		reason Reason
	}{
		"other secret": {
			server: ServerOptions{Secret: secret, OnMember: onMember},
			client: DialOptions{Secret: []byte("another secret")}, reason: ReasonSecret,
		},
		"other run": {
			server: ServerOptions{RunID: "one", OnMember: onMember},
			client: DialOptions{RunID: "two"}, reason: ReasonRunID,
		},
		"no run": {
			server: ServerOptions{RunID: "one", OnMember: onMember},
			reason: ReasonRunID,
		},
		"no group": {reason: ReasonRunID},
	} {
		t.Run(name, func(t *testing.T) {
			_, c.client.Addr = startServer(t, c.server)
			nc, err := DialMember(t.Context(), c.client)
			if err == nil {
				nc.Close()
			}
			if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Reason != c.reason {
				t.Errorf("the error is %v, want reason %s", err, c.reason)
			}
		})
	}
}
