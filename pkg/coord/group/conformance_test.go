package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/coordtest"
)

// TestConforms runs the conformance suite on a group of three. Between the steps, one time in ten, it kills the leader
// and starts another member. It kills nobody in the cases that a new leader may end otherwise, for these reasons:
func TestConforms(t *testing.T) {
	const (
		resync = "its watches begin again, with a batch of everything"
		expiry = "it gives sessions and keys their whole TTL again"
	)
	without := map[string]string{
		"AllOrNothing": resync, "Watch": resync, "WatchOrder": resync, "WatchSlow": resync, "KeepAlive": resync, "Close": resync,
		"Deletes": resync, "WatchPrefix": resync,
		"Expiry": expiry, "ExpiryAsked": expiry, "KeyTTL": expiry, "KeyTTLRenewed": expiry, "KeyTTLTaken": expiry,
	}
	coordtest.RunInBubble(t, func(t testing.TB) coordtest.Harness {
		t.Helper()
		often := 0.1
		if without[path.Base(t.Name())] != "" {
			often = 0
		}
		return newKilledGroup(t, often).harness()
	})
}

// gate is held by several calls, or by one kill. Unlike waiting for a mutex, waiting for a gate lets the time of a
// bubble pass. The channel's capacity is the maximum number of calls at a time.
type gate chan struct{}

func (g gate) enter() { g <- struct{}{} }
func (g gate) leave() { <-g }

// tryAll takes the gate for a kill if nobody holds it.
func (g gate) tryAll() bool {
	for n := range cap(g) {
		select {
		case g <- struct{}{}:
		default:
			for range n {
				<-g
			}
			return false
		}
	}
	return true
}

func (g gate) leaveAll() {
	for range cap(g) {
		<-g
	}
}

// killedGroup is a group whose leader is killed now and then, while no call is under way that the kill would make fail.
type killedGroup struct {
	t       testing.TB
	often   float64 // the probability of a kill before a call
	network *network

	calls   gate
	kills   int
	addrs   []string
	clients []*coord.Client
}

func newKilledGroup(t testing.TB, often float64) *killedGroup {
	t.Helper()
	return &killedGroup{t: t, often: often, calls: make(gate, 16)}
}

const (
	conformanceTTL = time.Minute
	maxKills       = 3 // of one case
)

func (g *killedGroup) harness() coordtest.Harness {
	return coordtest.Harness{TTL: conformanceTTL, Timeout: 5 * time.Minute, Open: g.open}
}

// open returns another client. The first call founds the group.
func (g *killedGroup) open(t testing.TB) coord.Store {
	t.Helper()
	for !g.calls.tryAll() {
		time.Sleep(time.Millisecond) //nolint:forbidigo // the bubble's time
	}
	defer g.calls.leaveAll()
	if g.network == nil {
		g.addrs = []string{"member0:1", "member1:1", "member2:1"}
		g.network = newNetwork(t, Options{})
		g.network.found(g.addrs...)
	}
	c := g.network.client(fmt.Sprintf("client%d", len(g.clients)), conformanceTTL, g.addrs...)
	g.clients = append(g.clients, c)
	return &killedStore{c, g}
}

// mayKill kills the leader, or does nothing.
func (g *killedGroup) mayKill() {
	if rand.Float64() >= g.often || !g.calls.tryAll() {
		return
	}
	defer g.calls.leaveAll()
	if g.kills++; g.kills > maxKills {
		return
	}
	g.addrs = g.network.grow(g.addrs, g.clients...)
	g.network.awaitSpare()
	g.network.kill(g.network.leader())
	synctest.Wait() // the clients have noticed that their connections have ended
}

// killedStore is a client of a killedGroup.
type killedStore struct {
	coord.Store
	g *killedGroup
}

// KeepAlive is the client's, with a kill before it.
func (s *killedStore) KeepAlive(ctx context.Context) error {
	s.g.mayKill()
	s.g.calls.enter()
	defer s.g.calls.leave()
	return s.Store.KeepAlive(ctx)
}

// Commit is the client's, with a kill before it.
func (s *killedStore) Commit(ctx context.Context, guards []coord.Guard, ops []coord.Op) (coord.Revision, error) {
	s.g.mayKill()
	s.g.calls.enter()
	defer s.g.calls.leave()
	return s.Store.Commit(ctx, guards, ops)
}

// Watch is the client's, with a kill before it.
func (s *killedStore) Watch(ctx context.Context, prefix string, handle func(coord.Batch) error) error {
	s.g.mayKill()
	return s.Store.Watch(ctx, prefix, handle)
}
