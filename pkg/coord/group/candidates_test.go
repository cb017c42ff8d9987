package group

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// TestUnreached has two candidates that cannot be reached. The member that leads names them until they can, or are no
// candidates any more.
func TestUnreached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.start("leads:1")
		n.start("cut:1")
		heal := n.isolate("cut:1")
		m := n.members["leads:1"]
		if err := m.Found(); err != nil {
			t.Fatal(err)
		}
		m.SetCandidates([]Candidate{{Addr: "leads:1"}, {Addr: "cut:1"}, {Addr: "nobody:1"}})
		check := func(what string, want ...string) {
			t.Helper()
			pass(15 * time.Second)
			var got []string
			for _, u := range m.Unreached() {
				got = append(got, u.Addr)
				if !errors.As(u.Err, new(*coord.DialError)) {
					t.Errorf("%s: %s was not reached because of %v", what, u.Addr, u.Err)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		check("at first", "cut:1", "nobody:1")
		heal()
		check("one is back", "nobody:1")
		m.SetCandidates(nil)
		check("without candidates")
		if len(m.dialErrs) > 0 {
			t.Errorf("the member remembers %v", m.dialErrs)
		}
	})
}
