package elastic

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/founding"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

var yes, no = true, false

// useEndpoints gives an agent the endpoints at these ports of this machine, of which it may listen at one.
func (a *C10d) useEndpoints(own int, ports ...int) {
	a.Users, a.More = &StoreUsers{Anybody: true}, nil
	for i, port := range ports {
		h := StoreHost{Host: "127.0.0.1", Ports: []int{port}, IsHost: &no}
		if port == own {
			h.IsHost = &yes
		}
		if i == 0 {
			a.Ports, a.IsHost = h.Ports, h.IsHost
			continue
		}
		a.More = append(a.More, h)
	}
}

// Two agents, each at the last endpoint of its own list, wait for each other, but not forever.
func TestEndpointsInAnotherOrder(t *testing.T) {
	t.Parallel()
	p, q, gone := testenv.FreePort(t), testenv.FreePort(t), testenv.FreePort(t)
	first, second := newMemberAccess(t, p), newMemberAccess(t, p)
	first.useEndpoints(p, q, p)
	second.useEndpoints(q, p, gone, q)
	defer func() { _ = errors.Join(first.Close(t.Context(), false), second.Close(t.Context(), false)) }()
	for _, a := range []*C10d{first, second} {
		if _, err := a.attempt(t.Context()); err == nil || permanent(err) {
			t.Fatalf("an agent begins with %v", err)
		}
	}
	_, err := first.attempt(t.Context())
	if err == nil || permanent(err) || !strings.Contains(err.Error(), "waits for others") {
		t.Fatalf("an agent that waits for one that waits: %v", err)
	}
	m := first.storeMember()
	m.began = m.began.Add(-founding.FoundDelay)
	store, err := first.attempt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close(t.Context())
	joined, err := second.attempt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer joined.Close(t.Context())
	if second.storeMember().member.Status().Leading {
		t.Error("there are two stores")
	}
}

// An agent at a further endpoint replies that it waits even while it asks another agent, which knows no store either:
// that agent may be asking it at the same time.
func TestWaitsAtOnce(t *testing.T) {
	t.Parallel()
	p, q := testenv.FreePort(t), testenv.FreePort(t)
	other, a := newMemberAccess(t, q), newMemberAccess(t, p)
	openTogether(t, other)
	other.storeMember().member.Yield(group.Announcement{Instance: "I"})
	a.useEndpoints(p, q, p)
	defer func() { _ = a.Close(t.Context(), false) }()
	if _, err := a.attempt(t.Context()); err == nil || permanent(err) {
		t.Fatalf("the agent begins with %v", err)
	}
	_, err := coord.Dial(t.Context(), a.dialOptions(a.storeMember().Addr, a.Host))
	if failed, ok := errors.AsType[*coord.DialError](err); !ok || !failed.Waits() {
		t.Errorf("the agent says %v, want that it waits", err)
	}
}

// An agent at a further endpoint founds nothing if an agent before it knows a member that cannot be reached from here.
func TestEndpointNamesAnother(t *testing.T) {
	t.Parallel()
	p, q := testenv.FreePort(t), testenv.FreePort(t)
	gone := net.JoinHostPort("127.0.0.1", strconv.Itoa(testenv.FreePort(t)))
	first, second := newMemberAccess(t, p), newMemberAccess(t, p)
	openTogether(t, first)
	m := first.storeMember()
	m.member.Yield(group.Announcement{Addr: gone, Instance: "I"})
	second.useEndpoints(q, p, q)
	defer func() { _ = second.Close(t.Context(), false) }()
	for range 2 {
		if _, err := second.attempt(t.Context()); err == nil || permanent(err) {
			t.Fatalf("an agent begins with %v", err)
		}
		second.storeMember().began = second.storeMember().began.Add(-founding.FoundDelay)
	}
}

// An agent of another version, or with another secret, begins no store beside the job's: it is refused for good.
func TestOtherVersion(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*C10d){
		"version": func(a *C10d) { a.Version = "other" },
		"secret":  func(a *C10d) { a.Secret = []byte("of another job") },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p, q, gone := testenv.FreePort(t), testenv.FreePort(t), testenv.FreePort(t)
			first := newMemberAccess(t, p)
			openTogether(t, first)
			for _, tt := range []struct {
				name  string
				own   int
				ports []int
				file  bool
			}{
				{name: "a further endpoint", own: q, ports: []int{p, gone, q}},
				{name: "the first endpoint", own: q, ports: []int{q, gone, p}},
				{name: "no endpoint", ports: []int{p, gone}},
				{name: "an agent that was started again", own: q, ports: []int{q}, file: true},
			} {
				t.Run(tt.name, func(t *testing.T) {
					a := newMemberAccess(t, q)
					a.RunID = first.RunID
					a.useEndpoints(tt.own, tt.ports...)
					change(a)
					if tt.file {
						before := &hostPlace{log: zerolog.Nop()}
						before.createMarkers(a)
						before.writeGroup(founding.EarlierGroup{Addrs: []string{first.storeMember().Addr}, Min: 2})
						defer func() { before.removeBeside((*machine.Marker).GroupFile) }()
					}
					defer func() { _ = a.Close(t.Context(), false) }()
					_, err := a.attempt(t.Context())
					if m := a.storeMember(); m != nil && !permanent(err) {
						m.began = m.began.Add(-10 * founding.FoundDelay)
						_, err = a.attempt(t.Context())
					}
					if refused, ok := errors.AsType[*coord.RefusedError](err); !ok || !permanent(err) {
						t.Errorf("the agent is not refused for good: %v", err)
					} else if refused.Reason != coord.ReasonVersion && refused.Reason != coord.ReasonSecret {
						t.Errorf("the agent is refused with %v", err)
					}
				})
			}
		})
	}
}
