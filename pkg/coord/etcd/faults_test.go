package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/coordtest"
)

// follower is a watch whose state a test waits for.
type follower struct {
	t testing.TB

	mu      sync.Mutex
	news    chan struct{}
	state   map[string]string
	resyncs int
	err     error
	done    chan struct{}
}

func followWatch(t testing.TB, s coord.Store, prefix string) *follower {
	t.Helper()
	f := &follower{t: t, news: make(chan struct{}), state: make(map[string]string), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(f.done)
		f.err = s.Watch(ctx, prefix, f.handle)
	}()
	t.Cleanup(func() {
		cancel()
		<-f.done
	})
	return f
}

func (f *follower) handle(b coord.Batch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.Resync {
		clear(f.state)
		f.resyncs++
	}
	for _, e := range b.Events {
		if e.Deleted {
			delete(f.state, e.Key)
		} else {
			f.state[e.Key] = string(e.Value)
		}
	}
	close(f.news)
	f.news = make(chan struct{})
	return nil
}

// await waits until the keys are exactly want.
func (f *follower) await(want map[string]string) {
	f.t.Helper()
	late := time.After(time.Minute)
	for {
		f.mu.Lock()
		got, news, resyncs := maps.Clone(f.state), f.news, f.resyncs
		f.mu.Unlock()
		if resyncs > 0 && maps.Equal(want, got) {
			return
		}
		select {
		case <-news:
		case <-f.done:
			f.t.Fatalf("the watch ended with %v; want %v, got %v", f.err, want, got)
		case <-late:
			f.t.Fatalf("after a minute the watch shows %v, want %v", got, want)
		}
	}
}

// mustCommit repeats an idempotent commit until the store has applied it.
func mustCommit(t testing.TB, s coord.Store, ops ...coord.Op) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		_, err := s.Commit(ctx, nil, ops)
		if err == nil {
			return
		}
		if ctx.Err() != nil || !errors.Is(err, coord.ErrUnavailable) {
			t.Fatalf("commit: %v", err)
		}
	}
}

func put(key, value string) coord.Op { return coord.Op{Key: key, Value: []byte(value)} }

func owned(key, value string) coord.Op {
	return coord.Op{Key: key, Value: []byte(value), Owned: true}
}

// TestRestart kills etcd and starts it again. Sessions and watches must continue.
func TestRestart(t *testing.T) {
	t.Parallel()
	c := startDebian(t, 1)[0]
	waitReady(t, c)
	s := open(t, Options{Endpoints: []string{c.client}, TTL: 30 * time.Second, OpTimeout: 3 * time.Second})
	coordtest.KeepAlive(t, s)
	f := followWatch(t, s, "")
	mustCommit(t, s, owned("own", "1"), put("plain", "1"))
	f.await(map[string]string{"own": "1", "plain": "1"})
	for round := range 2 {
		c.kill()
		start := time.Now()
		if err := s.KeepAlive(t.Context()); !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("KeepAlive without etcd returned %v, want %v", err, coord.ErrUnavailable)
		}
		if took := time.Since(start); took > s.options.OpTimeout+10*time.Second { // tolerates a busy machine
			t.Errorf("KeepAlive without etcd took %v", took)
		}
		c.start(t)
		value := fmt.Sprint("after ", round)
		mustCommit(t, s, put("plain", value))
		f.await(map[string]string{"own": "1", "plain": value})
		if err := s.KeepAlive(t.Context()); err != nil {
			if err = s.KeepAlive(t.Context()); err != nil { // the first may have used the old stream
				t.Errorf("KeepAlive after the restart: %v", err)
			}
		}
		f.mu.Lock()
		if f.resyncs != 1 {
			t.Errorf("the watch started again %d times, though nothing was lost", f.resyncs-1)
		}
		f.mu.Unlock()
	}
	if err := s.Err(); err != nil {
		t.Errorf("the session is lost: %v", err)
	}
}

// TestStoreGone replaces etcd by an empty one. The session and its watches must be lost.
func TestStoreGone(t *testing.T) {
	t.Parallel()
	c := startDebian(t, 1)[0]
	waitReady(t, c)
	s := open(t, Options{Endpoints: []string{c.client}})
	f := followWatch(t, s, "")
	for i := range 20 {
		mustCommit(t, s, put("k", strconv.Itoa(i)))
	}
	c.kill()
	if err := os.RemoveAll(c.data()); err != nil {
		t.Fatal(err)
	}
	c.start(t)
	waitReady(t, c)
	for !errors.Is(s.KeepAlive(t.Context()), coord.ErrSessionLost) {
		if t.Context().Err() != nil {
			t.Fatal("the session is not lost")
		}
	}
	<-f.done
	if !errors.Is(f.err, coord.ErrSessionLost) {
		t.Errorf("the watch returned %v, want %v", f.err, coord.ErrSessionLost)
	}
}

// TestCompaction cuts a watch off while etcd compacts the history that the watch needs.
func TestCompaction(t *testing.T) {
	t.Parallel()
	endpoint := startEtcd(t).client // the watches of other tests need the history of the shared server
	s := openLinked(t, endpoint, Options{TTL: time.Minute, OpTimeout: time.Second})
	other := open(t, Options{Endpoints: []string{endpoint}, TTL: time.Minute})
	f := followWatch(t, s, "")
	mustCommit(t, other, put("deleted", "1"), put("changed", "1"), put("same", "1"))
	f.await(map[string]string{"deleted": "1", "changed": "1", "same": "1"})
	s.link.set(func() { s.link.cut = true })
	s.link.reset()
	mustCommit(t, other, coord.Op{Key: "deleted", Delete: true})
	mustCommit(t, other, put("changed", "2"), put("new", "2"))
	rev, err := other.Commit(t.Context(), nil, []coord.Op{put("passing", "")})
	if err != nil {
		t.Fatal(err)
	}
	mustCommit(t, other, coord.Op{Key: "passing", Delete: true})
	// The revision of a delete is the worst case.
	if _, err := other.cli.Compact(t.Context(), int64(rev)+1, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	s.link.set(func() { s.link.cut = false })
	f.await(map[string]string{"changed": "2", "new": "2", "same": "1"})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.resyncs != 2 {
		t.Errorf("the watch started %d times, want 2", f.resyncs)
	}
}

// TestLeaderLost kills the leader of three members.
func TestLeaderLost(t *testing.T) {
	t.Parallel()
	members := startDebian(t, 3)
	cli := waitReady(t, members...)
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.client)
	}
	s := open(t, Options{Endpoints: endpoints, TTL: 30 * time.Second, OpTimeout: 2 * time.Second})
	coordtest.KeepAlive(t, s)
	var followers []*follower // on several members, by the client's round robin
	for range 4 {
		followers = append(followers, followWatch(t, s, ""))
	}
	mustCommit(t, s, owned("own", "1"), put("k", "1"))
	for _, f := range followers {
		f.await(map[string]string{"own": "1", "k": "1"})
	}
	for _, m := range members {
		status, err := cli.Status(t.Context(), m.client)
		if err != nil {
			t.Fatal(err)
		}
		if status.Leader == status.Header.MemberId {
			m.kill()
			break
		}
	}
	start := time.Now()
	mustCommit(t, s, put("k", "2"))
	t.Logf("the next commit was done %v after the leader's death", time.Since(start))
	for _, f := range followers {
		f.await(map[string]string{"own": "1", "k": "2"})
	}
	t.Logf("the watches delivered it %v after the leader's death", time.Since(start))
	if err := s.Err(); err != nil {
		t.Errorf("the session is lost: %v", err)
	}
}

// TestMinority isolates one of three members by killing the others. Its requests must fail in bounded time, and its
// watch must not look alive.
func TestMinority(t *testing.T) {
	t.Parallel()
	members := startDebian(t, 3)
	waitReady(t, members...)
	s := open(t, Options{Endpoints: []string{members[0].client}, TTL: 6 * time.Second, OpTimeout: time.Second})
	f := followWatch(t, s, "")
	mustCommit(t, s, put("k", "1"))
	f.await(map[string]string{"k": "1"})
	members[1].kill()
	members[2].kill()
	start := time.Now()
	_, err := s.Commit(t.Context(), nil, []coord.Op{put("k", "2")})
	if !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("a commit without a quorum returned %v, want %v", err, coord.ErrUnavailable)
	}
	if took := time.Since(start); took > 12*time.Second {
		t.Errorf("a commit without a quorum took %v", took)
	}
	for deadline := time.After(time.Minute); ; { // a leader answers until it notices that it has lost its majority
		if err := s.KeepAlive(t.Context()); errors.Is(err, coord.ErrUnavailable) {
			break
		}
		select {
		case <-deadline:
			t.Fatal("KeepAlive goes on without a quorum")
		default:
		}
	}
	members[1].start(t)
	members[2].start(t)
	mustCommit(t, s, put("k", "3"))
	f.await(map[string]string{"k": "3"})
}

// TestDroppedConnections makes the network drop the connections silently.
func TestDroppedConnections(t *testing.T) {
	t.Parallel()
	endpoint, prefix := shared.endpoint(t), rand.Text()
	other := open(t, Options{Endpoints: []string{endpoint}, Prefix: prefix, TTL: time.Minute})
	watcher := openLinked(t, endpoint, Options{Prefix: prefix, TTL: 6 * time.Second})
	f := followWatch(t, watcher, "")
	f.await(map[string]string{})
	watcher.link.forget()
	mustCommit(t, other, put("k", "1"))
	start := time.Now()
	f.await(map[string]string{"k": "1"}) // without any other request
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("the watch delivered nothing for %v", took)
	}
	// One KeepAlive fails. Soon another one uses a new connection, and the session survives.
	fresh := openLinked(t, endpoint, Options{Prefix: prefix, TTL: 24 * time.Second})
	if err := fresh.KeepAlive(t.Context()); err != nil {
		t.Fatal(err)
	}
	fresh.link.forget()
	if err := fresh.KeepAlive(t.Context()); !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("KeepAlive over a dead connection returned %v", err)
	}
	for deadline := time.Now().Add(fresh.TTL() / 3); ; { // the next call may still meet the old connection
		err := fresh.KeepAlive(t.Context())
		if err == nil {
			break
		}
		if !errors.Is(err, coord.ErrUnavailable) || time.Now().After(deadline) {
			t.Fatalf("KeepAlive after the dead connection was dropped: %v", err)
		}
	}
}

// TestSlow delays all traffic.
func TestSlow(t *testing.T) {
	t.Parallel()
	endpoint, prefix := shared.endpoint(t), rand.Text()
	s := openLinked(t, endpoint, Options{Prefix: prefix, TTL: 15 * time.Second, OpTimeout: 3 * time.Second})
	delay := func(d time.Duration) { s.link.set(func() { s.link.delay = d }) }
	coordtest.KeepAlive(t, s)
	delay(200 * time.Millisecond)
	f := followWatch(t, s, "")
	for i := range 3 {
		mustCommit(t, s, owned("k", strconv.Itoa(i)))
	}
	f.await(map[string]string{"k": "2"})
	delay(5 * time.Second) // too slow for a request
	start := time.Now()
	_, err := s.Commit(t.Context(), nil, []coord.Op{owned("k", "late")})
	if !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("a commit that is too slow returned %v", err)
	}
	if took := time.Since(start); took > s.options.OpTimeout+10*time.Second { // tolerates a busy machine
		t.Errorf("a commit that may take %v took %v", s.options.OpTimeout, took)
	}
	delay(0)
	mustCommit(t, s, owned("k", "end"))
	f.await(map[string]string{"k": "end"})
	if err := s.Err(); err != nil {
		t.Errorf("the session is lost: %v", err)
	}
}
