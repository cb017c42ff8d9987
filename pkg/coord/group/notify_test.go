package group

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// TestNotify calls Notify of members, and of a process that refers clients to their group. The group's leader does not
// know the notified address.
func TestNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1", "member1:1", "member2:1")
		c := n.client("client", time.Minute, "member0:1")
		heard := n.listen("other:1")
		if err := n.members["other:1"].Found(); err != nil {
			t.Fatal(err)
		}
		n.start("follows:1")
		n.start("knows-none:1")
		n.members["follows:1"].Yield(Announcement{Addr: "member0:1", Instance: c.InstanceID()})
		want := []Announcement{{Addr: "member0:1", Instance: c.InstanceID(), Label: "one", Relayed: true}}
		for _, from := range []string{"member0:1", "member1:1", "follows:1"} {
			n.members[from].Notify("other:1", "one")
			if diff := cmp.Diff(want, drain(heard)); diff != "" {
				t.Errorf("%s says (-want +got):\n%s", from, diff)
			}
		}
		n.members["knows-none:1"].Notify("other:1", "one")
		n.members["other:1"].Notify("other:1", "one")
		if got := drain(heard); len(got) > 0 {
			t.Errorf("a group is told of by a process that knows none, or to its own leader: %v", got)
		}
	})
}

// TestWait checks the answer of a process that waits for others to found a group. Clients find no address to follow.
// Once the process knows a group, it no longer says that it waits.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.start("waits:1")
		m := n.members["waits:1"]
		waits := func() bool {
			t.Helper()
			opts := n.opts.Dial
			opts.Addr = "waits:1"
			opts.Conn = func(ctx context.Context) (net.Conn, error) { return n.dial(ctx, "client", "waits:1") }
			_, err := coord.Dial(t.Context(), opts)
			failed, ok := errors.AsType[*coord.DialError](err)
			if !ok || failed.Obstacle != coord.ObstacleElsewhere {
				t.Fatalf("a client gets %v", err)
			}
			return failed.Waits()
		}
		if waits() {
			t.Error("a process waits before it says so")
		}
		m.Wait()
		if !waits() {
			t.Error("a process that waits does not say so")
		}
		m.Yield(Announcement{Addr: "nobody:1", Instance: "I"})
		m.Wait()
		if m.referral != "nobody:1" {
			t.Error("a process that knows a group waits")
		}
	})
}
