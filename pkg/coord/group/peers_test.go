package group

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// foreignHeartbeat returns a heartbeat of another group's replica 2 to its replica 1, which has 100 entries.
func foreignHeartbeat(t *testing.T) replica.Message {
	t.Helper()
	replicas := map[replica.ID]*replica.Replica{}
	for id := replica.ID(1); id <= 2; id++ {
		r, err := replica.New(replica.Config{ID: id, Founder: id == 1, ElectionTimeout: func() int { return 1000 }})
		if err != nil {
			t.Fatal(err)
		}
		replicas[id] = r
	}
	for i := range 100 {
		if _, err := replicas[1].Write([]replica.Edit{{Key: fmt.Sprint(i), Value: []byte("v")}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := replicas[1].Change([]replica.ID{1, 2}, nil); err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		for id, r := range replicas {
			// So often that the term is above that of any other group. It fails until replica 2 votes.
			if r.Status().Leading && (i < 300 || id == 1) {
				_ = r.TransferTo(3 - id)
			}
		}
		for _, r := range replicas {
			r.Tick()
			for _, m := range r.Output().Messages {
				b, err := m.Encode()
				if err != nil {
					t.Fatal(err)
				}
				if m, err = replica.Decode(b); err != nil {
					t.Fatal(err)
				}
				if err := replicas[m.To()].Step(m); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	replicas[2].Tick()
	messages := replicas[2].Output().Messages
	if len(messages) != 1 || !replicas[2].Status().Leading {
		t.Fatalf("%d messages of %+v", len(messages), replicas[2].Status())
	}
	return messages[0]
}

// TestRefusedMessage sends a member a message that contradicts its log. The member ends the connection.
func TestRefusedMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1", "member1:1", "member2:1")
		message, err := foreignHeartbeat(t).Encode()
		if err != nil {
			t.Fatal(err)
		}
		opts := n.opts.Dial
		opts.Addr = "member0:1"
		opts.Conn = func(ctx context.Context) (net.Conn, error) { return n.dial(ctx, "unknown", "member0:1") }
		nc, err := coord.DialMember(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		hello := make(chan []byte, 1)
		m := n.members["member0:1"]
		m.call(func() { hello <- m.hello() })
		b := slices.Concat(<-hello, frame{kind: frameRaft, message: message}.encode())
		if _, err := nc.Write(b); err != nil {
			t.Fatal(err)
		}
		nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection goes on: %v", err)
		}
	})
}

// TestSent checks when the channel of send reports that a frame was sent or lost.
func TestSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1")
		n.start("other:1")
		n.start("silent:1")
		n.isolate("silent:1")
		m := n.members["member0:1"]
		send := func(addr string) (sent <-chan struct{}) {
			inLoop(m, func() { sent = m.send(addr, frame{kind: frameAnnounce}) })
			return sent
		}
		for range 2 { // first with a new connection, then with the existing one
			began := time.Now()
			soon(t, send("other:1"), "the frame")
			if took := time.Since(began); took > 0 {
				t.Errorf("it took %v to send a frame", took)
			}
		}
		n.breakConns(func(l *link) bool { return l.ends[1] == "other:1" })
		for what, addr := range map[string]string{"a broken connection": "other:1", "nobody": "nobody:1"} {
			began := time.Now()
			soon(t, send(addr), "the loss of the frame")
			if took := time.Since(began); took > maxTries*dialPause {
				t.Errorf("it took %v to lose a frame to %s", took, what)
			}
		}
		first := send("silent:1")
		synctest.Wait()
		for range maxQueued {
			send("silent:1")
		}
		soon(t, send("silent:1"), "the loss of the frame") // the queue has no room for it
		select {
		case <-first:
			t.Error("a frame that waits for a connection counts as sent")
		default:
		}
	})
}

// TestNextProcess sends a frame to a new process at the address of a former one. The frame arrives, although the
// connection to the former process ended silently.
func TestNextProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1")
		m := n.members["member0:1"]
		for range 3 {
			heard := n.listen("other:1")
			inLoop(m, func() { m.send("other:1", frame{kind: frameAnnounce}) })
			soon(t, heard, "the frame")
			n.kill("other:1")
			synctest.Wait()
		}
	})
}
