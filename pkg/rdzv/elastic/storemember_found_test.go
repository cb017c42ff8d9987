package elastic

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/founding"
)

// newMemberAccess returns the access of an agent at an endpoint of this machine, whose store others may keep too.
func newMemberAccess(t *testing.T, port int) *C10d {
	t.Helper()
	return &C10d{
		RunID: uniqueRunID(t), Version: "test", TTL: time.Second, Host: "127.0.0.1", Ports: []int{port}, Hint: -1,
		Voters: 3, MinNodes: 2, LocalAddr: "127.0.0.1", Logger: zerolog.New(zerolog.NewTestWriter(t)),
	}
}

// openTogether opens a session, and ends the access with the test.
func openTogether(t *testing.T, a *C10d) coord.Store {
	t.Helper()
	store, err := a.attempt(t.Context())
	t.Cleanup(func() { _ = a.Close(t.Context(), false) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close(t.Context()) })
	return store
}

// newFounder returns an agent, and its part in the store, that has founded a group and knows of other agents. name
// distinguishes it from others of the test.
func newFounder(t *testing.T, name string, known []string) (*C10d, *storeMember) {
	t.Helper()
	a := newMemberAccess(t, testenv.FreePort(t))
	a.RunID += "-" + checksum(name)
	return a, found(t, a, known)
}

// found makes an agent found a group, which it leads, and know of other agents. Each decision of its leader of the
// rendezvous, of which the first one may be under way, makes it know of nobody again.
func found(t *testing.T, a *C10d, known []string) *storeMember {
	t.Helper()
	var m *storeMember
	t.Cleanup(func() { m.removeGroupFile() }) // after the agent has closed, which writes the file
	openTogether(t, a)
	m = a.storeMember()
	testenv.Await(t, "that it leads", time.Minute, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.Status.Leading
	})
	m.setKnown(known, 0)
	return m
}

// listenSilently listens at an address where nobody answers.
func listenSilently(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// An agent that finds the record of an earlier group founds another one only if too few of its agents may be alive.
func TestEarlierGroup(t *testing.T) {
	t.Parallel()
	silent := listenSilently(t)
	gone := net.JoinHostPort("127.0.0.1", strconv.Itoa(testenv.FreePort(t)))
	for _, tt := range []struct {
		name         string
		addrs        []string
		others, min  int
		label        string
		launch, mine string
		founds       bool
		later        bool // it founds after a keep-alive time
	}{
		{name: "all are gone", addrs: []string{gone}, min: 1, founds: true},
		{name: "as many as a round may be alive", addrs: []string{gone, silent.Addr().String()}, min: 1},
		{name: "too few for a round", addrs: []string{gone, silent.Addr().String()}, min: 3, later: true},
		{name: "enough with this node", addrs: []string{gone, silent.Addr().String()}, min: 2},
		{name: "others that kept nothing", addrs: []string{gone}, others: 2, min: 2, later: true},
		{name: "others, and one that may be alive", addrs: []string{gone, silent.Addr().String()}, others: 2, min: 1},
		{name: "too few others", addrs: []string{gone}, others: 1, min: 3, later: true},
		{name: "others, and one that may have a leader", addrs: []string{silent.Addr().String()}, others: 1, min: 2},
		{name: "another job", addrs: []string{silent.Addr().String()}, min: 1, label: "other", founds: true},
		{name: "another launch", addrs: []string{silent.Addr().String()}, min: 1, launch: "1", mine: "2", founds: true},
		{name: "the same launch", addrs: []string{silent.Addr().String()}, min: 1, launch: "1", mine: "1"},
		{name: "an unknown launch", addrs: []string{silent.Addr().String()}, min: 1, launch: "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := newMemberAccess(t, testenv.FreePort(t))
			a.LaunchID = tt.mine
			a.RunID += "-" + checksum(tt.name)
			before := &hostPlace{log: zerolog.Nop()}
			before.createMarkers(a)
			before.writeGroup(founding.EarlierGroup{
				Label: tt.label, Launch: tt.launch, Addrs: tt.addrs, Others: tt.others, Min: tt.min,
			})
			t.Cleanup(func() {
				for _, m := range before.markers {
					_ = removeFile(m.GroupFile())
				}
			})
			store, err := a.attempt(t.Context())
			defer func() {
				if store != nil {
					_ = store.Close(t.Context())
				}
				_ = a.Close(t.Context(), false)
			}()
			if founds := err == nil; founds != tt.founds {
				t.Errorf("founds: %v, %v, want %v", founds, err, tt.founds)
			}
			if err != nil && (permanent(err) || !strings.HasSuffix(err.Error(), "remove "+before.groupFile())) {
				t.Errorf("%v is permanent, or does not name the file", err)
			}
			if tt.later {
				m := a.storeMember()
				m.update(func() { m.TooFewSince = m.TooFewSince.Add(-a.TTL) })
				if store, err = a.attempt(t.Context()); err != nil {
					t.Errorf("after a keep-alive time: %v", err)
				}
			}
			if fresh := a.storeMember().place.fresh; !fresh.HasPredecessor {
				t.Error("the first round would not wait for workers of the earlier group")
			}
		})
	}
}

// The agent that keeps the store records that others may go on once there are two of them, or it is about to hand over
// to one.
func TestRecordOfGroup(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		known  []string
		leaves bool
		want   bool
	}{
		{name: "nobody", leaves: true},
		{name: "one agent", known: []string{"127.0.0.1:1"}},
		{name: "one agent, and it hands over", known: []string{"127.0.0.1:1"}, leaves: true, want: true},
		{name: "two agents", known: []string{"127.0.0.1:1", "127.0.0.1:2"}, want: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, m := newFounder(t, tt.name, tt.known)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			testenv.Await(t, fmt.Sprintf("recorded: %v", tt.want), time.Minute, func() bool {
				m.setKnown(tt.known, 0) // again: see found
				if tt.leaves {
					m.handOver(ended)
				}
				return (m.place.readEarlierGroup(a) != nil) == tt.want
			})
		})
	}
}

// An agent at the endpoint that has founded a group without a round joins the group that announces itself there.
func TestFounderYields(t *testing.T) {
	t.Parallel()
	first, second := newMemberAccess(t, testenv.FreePort(t)), newMemberAccess(t, testenv.FreePort(t))
	openTogether(t, first)
	openTogether(t, second)
	founder, other := second.storeMember(), first.storeMember()
	other.mu.Lock()
	other.HasRound = true // so that it yields to nobody
	other.mu.Unlock()
	announced := group.Announcement{
		Addr: other.Addr, Instance: first.client.InstanceID(), Label: `{"has_round":true,"index":1048576}`,
	}
	for _, tt := range []struct {
		name     string
		label    string
		hasRound bool
		yields   bool
	}{
		{name: "another job", label: `{"label":"x","has_round":true,"index":9}`},
		{name: "no round, and a later endpoint", label: `{"index":1}`},
		{name: "not understood", label: "?"},
		{name: "with a round of its own", hasRound: true},
		{name: "without a round", yields: true},
	} {
		founder.mu.Lock()
		founder.HasRound = tt.hasRound
		founder.mu.Unlock()
		it := announced
		it.Label = cmp.Or(tt.label, it.Label)
		founder.consider(t.Context(), it)
		if yields := !founder.member.Status().Member; yields != tt.yields {
			t.Fatalf("%s: yields: %v", tt.name, yields)
		}
	}
	if !founder.mayDecide(true) {
		t.Error("the member that has yielded still does")
	}
	store, err := second.attempt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close(t.Context())
	if got := store.(*coord.Client).InstanceID(); got != first.client.InstanceID() {
		t.Errorf("the agent has a session in %s, want %s", got, first.client.InstanceID())
	}
}

// While an agent gives up its group, no round of it is decided; and a group that has decided a round is not given up.
func TestYieldOrDecide(t *testing.T) {
	t.Parallel()
	a := newMemberAccess(t, testenv.FreePort(t))
	openTogether(t, a)
	m := a.storeMember()
	m.mu.Lock()
	m.Yielding = true
	m.mu.Unlock()
	if m.mayDecide(true) {
		t.Error("a round is decided while the group is given up")
	}
	m.mu.Lock()
	m.Yielding = false
	m.mu.Unlock()
	if !m.mayDecide(true) {
		t.Fatal("no round is decided")
	}
	m.consider(t.Context(), group.Announcement{Addr: "127.0.0.1:1", Instance: "other", Label: `{"has_round":true,"index":9}`})
	if !m.member.Status().Member {
		t.Error("a group with a round was given up")
	}
}

// An announcement of this process's own group is no second store: the process may have joined after it has arrived.
func TestOwnGroupAnnounced(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	a := newMemberAccess(t, testenv.FreePort(t))
	a.Logger = zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.ErrorLevel)
	store := openTogether(t, a)
	m := a.storeMember()
	m.mayDecide(true)
	consider := func(instance string) string {
		log.Reset()
		m.consider(t.Context(), group.Announcement{Addr: "127.0.0.1:1", Instance: instance, Label: `{"has_round":true}`})
		return log.String()
	}
	if said := consider("other"); !strings.Contains(said, "another store of this run") {
		t.Errorf("of another group with a round it says %q", said)
	}
	if said := consider(store.(*coord.Client).InstanceID()); said != "" {
		t.Errorf("of its own group it says %q", said)
	}
	if !m.member.Status().Member {
		t.Error("it has left its group")
	}
}

// An agent that was in a group, and has lost it, founds no second one while the others may go on.
func TestRemovedFounder(t *testing.T) {
	t.Parallel()
	silent := listenSilently(t).Addr().String()
	a := newMemberAccess(t, testenv.FreePort(t))
	openTogether(t, a)
	m := a.storeMember()
	lose := func(least int) {
		m.member.Yield(group.Announcement{}) // as when the others have removed it
		m.setKnown([]string{silent, "127.0.0.1:1"}, 0)
		m.update(func() { m.HeardOf, m.Job.Min = time.Time{}, least })
	}
	lose(1)
	if _, err := a.attempt(t.Context()); err == nil || permanent(err) {
		t.Errorf("beside an agent that may have a round: %v", err)
	}
	lose(3)
	if _, err := a.attempt(t.Context()); err == nil {
		t.Error("a second group is founded at once, though the first one may only be out of reach for a moment")
	}
	m.update(func() { m.TooFewSince = m.TooFewSince.Add(-a.TTL) })
	store, err := a.attempt(t.Context())
	if err != nil {
		t.Fatalf("beside an agent that can have no round: %v", err)
	}
	defer store.Close(t.Context())
	if m.HasRound || !m.place.fresh.HasPredecessor {
		t.Error("the next round does not wait for workers of the former group")
	}
}

// An agent at a further endpoint waits for those before it.
func TestFurtherEndpoint(t *testing.T) {
	t.Parallel()
	first, second := testenv.FreePort(t), testenv.FreePort(t)
	yes, no := true, false
	a := newMemberAccess(t, first)
	a.IsHost, a.More = &no, []StoreHost{{Host: "127.0.0.1", Ports: []int{second}, IsHost: &yes}}
	defer func() { _ = a.Close(t.Context(), false) }()
	_, err := a.attempt(t.Context())
	if err == nil || permanent(err) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("the agent at the second endpoint begins with %v", err)
	}
	m := a.storeMember()
	m.began = m.began.Add(-founding.FoundDelay)
	store, err := a.attempt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close(t.Context())
	if at := fmt.Sprintf("127.0.0.1:%d", second); m.Addr != at {
		t.Errorf("the store is at %s, want %s", m.Addr, at)
	}
	newcomer := newMemberAccess(t, first)
	newcomer.RunID, newcomer.IsHost = a.RunID, &no
	newcomer.More = []StoreHost{{Host: "127.0.0.1", Ports: []int{second}, IsHost: &no}}
	joined, err := newcomer.attempt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer joined.Close(t.Context())
}

// An agent that was started before this node's former agent had ended listens at the endpoint once that has ended.
func TestEndpointIsTakenOver(t *testing.T) {
	t.Parallel()
	yes := true
	for _, tt := range []struct {
		name string
		at   func(a *C10d, ports []int)
	}{
		{"one port", func(a *C10d, ports []int) { a.Ports = ports[:1] }},
		{"several ports", func(a *C10d, ports []int) { a.Ports = ports }},
		{"a further endpoint", func(a *C10d, ports []int) {
			no := false
			a.IsHost, a.More = &no, []StoreHost{{Host: "127.0.0.1", Ports: ports[1:], IsHost: &yes}}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ports := []int{testenv.FreePort(t), testenv.FreePort(t)}
			start := func() *C10d {
				a := newMemberAccess(t, ports[0])
				a.RunID += checksum(tt.name)
				tt.at(a, ports)
				return a
			}
			former, next := start(), start()
			openFounded(t, former)
			endpoint := former.storeMember().Addr
			client, err := next.attempt(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close(t.Context())
			if err := former.Close(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			addr, err := next.JoinStore(t.Context(), nil)
			defer func() { _ = next.Close(t.Context(), false) }()
			if err != nil || addr != endpoint {
				t.Errorf("it listens at %s, %v, want %s", addr, err, endpoint)
			}
			if m := next.storeMember(); m == nil || !m.WasMember {
				t.Error("it does not know that there is a group")
			}
		})
	}
}

// openFounded opens a session as the founder of the group. At a further endpoint it does not wait for the others.
func openFounded(t *testing.T, a *C10d) {
	t.Helper()
	store, err := a.attempt(t.Context())
	if m := a.storeMember(); err != nil && m != nil {
		m.began = m.began.Add(-founding.FoundDelay)
		store, err = a.attempt(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close(t.Context()) })
}

// An agent that has heard of another group, and then does not reach it, founds none beside it.
func TestGroupThatWasHeardOf(t *testing.T) {
	t.Parallel()
	gone := net.JoinHostPort("127.0.0.1", strconv.Itoa(testenv.FreePort(t)))
	for _, hasFile := range []bool{false, true} {
		t.Run(fmt.Sprintf("with a file: %v", hasFile), func(t *testing.T) {
			t.Parallel()
			leader, other := listenSilently(t).Addr().String(), gone
			if hasFile { // the announcer is gone, the file names another one
				leader, other = gone, listenSilently(t).Addr().String()
			}
			a := newMemberAccess(t, testenv.FreePort(t))
			a.RunID, a.MinNodes = a.RunID+strconv.FormatBool(hasFile), 1
			if hasFile {
				before := &hostPlace{log: zerolog.Nop()}
				before.createMarkers(a)
				before.writeGroup(founding.EarlierGroup{Addrs: []string{other}, Min: 1})
			}
			defer func() { _ = a.Close(t.Context(), false) }()
			if store, err := a.attempt(t.Context()); err == nil { // it has no file
				defer store.Close(t.Context())
			}
			m := a.storeMember()
			defer m.removeGroupFile()
			m.consider(t.Context(), group.Announcement{Addr: leader, Instance: "other", Label: `{"has_round":true}`})
			m.update(func() { m.HeardOf = m.HeardOf.Add(-a.TTL) })
			if store, err := a.attempt(t.Context()); err == nil {
				_ = store.Close(t.Context())
				t.Error("a second group is founded")
			}
		})
	}
}
