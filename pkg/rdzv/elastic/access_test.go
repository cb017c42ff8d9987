package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// fakeNetwork has stores at the ports of one machine, in memory.
type fakeNetwork struct {
	mu     sync.Mutex
	stores map[int]*coord.Server
	fakes  map[int]func(net.Conn) // serve connections instead of a store
	dialed []int
}

func (n *fakeNetwork) connect(_ context.Context, addr string) (net.Conn, error) {
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dialed = append(n.dialed, at.Port)
	s, fake := n.stores[at.Port], n.fakes[at.Port]
	if s == nil && fake == nil {
		return nil, syscall.ECONNREFUSED
	}
	near, far := net.Pipe()
	if fake != nil {
		go fake(far)
	} else {
		go s.ServeConn(far)
	}
	return near, nil
}

// client returns the access of an agent of run "mine" that hosts nothing.
func (n *fakeNetwork) client(log zerolog.Logger, ports ...int) *C10d {
	no := false
	return &C10d{
		RunID: "mine", TTL: time.Minute, Host: "10.0.0.1", Ports: ports, IsHost: &no, Hint: -1,
		Connect: n.connect, Logger: log,
	}
}

func storeOf(t *testing.T, runID string) *coord.Server {
	t.Helper()
	s := coord.NewServer(coord.ServerOptions{RunID: runID, SessionTTL: time.Minute, Logger: zerolog.Nop()})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A client tries all candidate ports and says what it has found at each.
func TestClientsTryAllPorts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ports []int
		// there has the run ids of the stores at ports 1, 2 and 3, or "" for no store. The store of "mine" starts after
		// later, at port at.
		there  [3]string
		later  time.Duration
		at     int
		within time.Duration // the join timeout
		took   time.Duration // at least; at most a second more
		err    []string      // in the error's text; nil for none
		reason coord.Reason  // of the refusal, if the error is one
	}{
		{name: "the first", ports: []int{1, 2, 3}, there: [3]string{"mine", "", ""}, within: time.Minute},
		{name: "behind another job", ports: []int{1, 2, 3}, there: [3]string{"other", "mine", ""}, within: time.Minute},
		{name: "behind a free port", ports: []int{1, 2, 3}, there: [3]string{"", "other", "mine"}, within: time.Minute},
		{
			name: "starts later", ports: []int{1, 2}, there: [3]string{"other", "", ""}, within: time.Minute,
			later: 30 * time.Second, at: 2,
			took: 30 * time.Second,
		},
		{
			name: "all are taken, for a moment", ports: []int{1, 2}, there: [3]string{"other", "third", ""},
			within: time.Minute, later: 2 * time.Second, at: 2,
			took: 2 * time.Second,
		},
		{
			name: "all are taken", ports: []int{1, 2}, there: [3]string{"other", "third", ""}, within: time.Minute,
			took: takenPortTimeout, reason: coord.ReasonRunID,
			err: []string{
				`the job's store was not reached at rendezvous endpoint 10.0.0.1, ports 1, 2: the store at 10.0.0.1:1 refuses: the store belongs to another job: its run id is "other"`,
				`; the store at 10.0.0.1:2 refuses: the store belongs to another job: its run id is "third"`,
			},
		},
		{
			name: "one is free", ports: []int{1, 2}, there: [3]string{"other", "", ""}, within: time.Minute,
			took: time.Minute,
			err: []string{
				`its run id is "other"`,
				"; connect to the job's store at 10.0.0.1:2: nobody listens there", "(stopped)",
			},
		},
		{
			name: "the only one is another job's", ports: []int{1}, there: [3]string{"other", "", ""},
			within: time.Minute, took: takenPortTimeout, reason: coord.ReasonRunID,
			err: []string{`rendezvous endpoint 10.0.0.1:1: the store at 10.0.0.1:1 refuses: the store belongs to another job`},
		},
		{
			name: "the only one is free", ports: []int{2}, within: 10 * time.Second, took: 10 * time.Second,
			err: []string{"the job's store was not reached at rendezvous endpoint 10.0.0.1:2: connect to the job's store at 10.0.0.1:2: nobody listens there"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &fakeNetwork{stores: map[int]*coord.Server{}}
				for i, runID := range tt.there {
					if runID != "" {
						n.stores[i+1] = storeOf(t, runID)
					}
				}
				if tt.later > 0 {
					mine := storeOf(t, "mine")
					defer time.AfterFunc(tt.later, func() {
						n.mu.Lock()
						defer n.mu.Unlock()
						n.stores[tt.at] = mine
					}).Stop()
				}
				ctx, cancel := context.WithTimeoutCause(t.Context(), tt.within, errors.New("stopped"))
				defer cancel()
				began := time.Now()
				store, err := n.client(zerolog.Nop(), tt.ports...).Open(ctx)
				if took := time.Since(began); took < tt.took || took > tt.took+time.Second {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
				if err == nil {
					defer store.Close(t.Context())
				}
				if (err != nil) != (tt.err != nil) {
					t.Fatalf("got %v", err)
				}
				for _, want := range tt.err {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v does not say %q", err, want)
					}
				}
				var refused *coord.RefusedError
				if errors.As(err, &refused) != (tt.reason != 0) || tt.reason != 0 && refused.Reason != tt.reason {
					t.Errorf("%v is a refusal: %+v", err, refused)
				}
			})
		})
	}
}

// An agent with a secret does not end at once after an answer without a proof of the secret. The answer may come from
// an earlier job's store, or from anybody.
func TestUnprovedAnswersMayPass(t *testing.T) {
	open := func(t *testing.T, agent, unknownPeer string, leaves time.Duration) (took time.Duration, err error) {
		t.Helper()
		store := func(secret string) *coord.Server {
			s := coord.NewServer(coord.ServerOptions{Secret: []byte(secret), Logger: zerolog.Nop()})
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
		n := &fakeNetwork{stores: map[int]*coord.Server{1: store(unknownPeer)}}
		right := store(agent)
		defer time.AfterFunc(leaves, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.stores[1] = right
		}).Stop()
		a := n.client(zerolog.Nop(), 1)
		a.Secret = []byte(agent)
		began := time.Now()
		joined, err := a.Open(t.Context())
		if err == nil {
			defer joined.Close(t.Context())
		}
		return time.Since(began), err
	}
	for _, tt := range []struct {
		name, agent, unknownPeer string
		leaves, took             time.Duration
		refused                  bool
	}{
		{name: "leaves", agent: "mine", unknownPeer: "other", leaves: time.Second, took: time.Second},
		{name: "without a secret leaves", agent: "mine", leaves: time.Second, took: time.Second},
		{name: "stays", agent: "mine", unknownPeer: "other", leaves: time.Minute, took: takenPortTimeout, refused: true},
		{name: "the agent has none", unknownPeer: "other", leaves: time.Second, refused: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				took, err := open(t, tt.agent, tt.unknownPeer, tt.leaves)
				var refused *coord.RefusedError
				if errors.As(err, &refused) != tt.refused || (err != nil) != tt.refused {
					t.Errorf("got %v, want a refusal: %t", err, tt.refused)
				}
				if took < tt.took || took > tt.took+time.Second {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

// A second session goes to the port of the first, even if the store of the run could now be at an earlier port.
func TestReconnectUsesTheSamePort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNetwork{stores: map[int]*coord.Server{1: storeOf(t, "other"), 2: storeOf(t, "mine")}}
		a := n.client(zerolog.Nop(), 1, 2)
		for range 2 {
			store, err := a.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if diff := cmp.Diff([]int{1, 2, 2}, n.dialed); diff != "" {
			t.Errorf("the ports that were dialed (-want +got):\n%s", diff)
		}
	})
}

// An agent that cannot reach the store warns less and less often, and says how long it will keep trying.
func TestDialNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		n := &fakeNetwork{}
		began := time.Now()
		log := zerolog.New(&logged).Hook(zerolog.HookFunc(func(e *zerolog.Event, _ zerolog.Level, _ string) {
			e.Int("at", int(time.Since(began).Seconds()))
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Second)
		defer cancel()
		if _, err := n.client(log, 1).Open(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		type line struct {
			At   int
			Left string `json:"gives_up_in"`
		}
		var got []line
		for text := range strings.Lines(logged.String()) {
			var l line
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				t.Fatal(err)
			}
			got = append(got, l)
		}
		want := []line{{1, "3m19s"}, {11, "3m09s"}, {31, "2m49s"}, {71, "2m09s"}, {131, "1m09s"}, {191, "9s"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
