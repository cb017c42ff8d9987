package etcd

import (
	"crypto/rand"
	"errors"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// TestLeases checks the leases and keys that a store makes in etcd.
func TestLeases(t *testing.T) {
	t.Parallel()
	endpoint := startEtcd(t).client
	cli := waitReady(t, &server{client: endpoint})
	s := open(t, Options{Endpoints: []string{endpoint}, TTL: 29500 * time.Millisecond})
	leases := func(want int) {
		t.Helper()
		all, err := cli.Leases(t.Context())
		if err != nil || len(all.Leases) != want {
			t.Errorf("etcd has %d leases (%v), want %d", len(all.Leases), err, want)
		}
	}
	keys := func(want ...string) {
		t.Helper()
		all, err := cli.Get(t.Context(), "elasticrun", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, kv := range all.Kvs {
			got = append(got, string(kv.Key))
		}
		if !slices.Equal(want, got) {
			t.Errorf("etcd has the keys %q, want %q", got, want)
		}
	}
	if got := s.TTL(); got != 30*time.Second {
		t.Errorf("the TTL is %v, want whole seconds, rounded up", got)
	}
	leases(1)
	keys()
	mustCommit(t, s, owned("own", "v"))
	keys("elasticrun/keys/own") // an agent that only writes its own keys needs no other key
	mustCommit(t, s, put("plain", "v"))
	fence := "elasticrun/sessions/" + string(s.Session())
	keys("elasticrun/keys/own", "elasticrun/keys/plain", fence)

	short := coord.Op{Key: "short", TTL: time.Hour}
	long := coord.Op{Key: "long", TTL: 2 * time.Hour}
	also := coord.Op{Key: "also short", TTL: time.Hour}
	for range 3 {
		_, err := s.Commit(t.Context(), []coord.Guard{{Key: "plain"}}, []coord.Op{short, long, also})
		if !errors.Is(err, coord.ErrConflict) {
			t.Fatal(err)
		}
	}
	leases(1) // the leases of the refused commits were revoked
	mustCommit(t, s, short, long, also)
	leases(3)

	f := followWatch(t, s, "")
	f.await(map[string]string{"own": "v", "plain": "v", "short": "", "long": "", "also short": ""})
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys("elasticrun/keys/also short", "elasticrun/keys/long", "elasticrun/keys/plain", "elasticrun/keys/short")
	leases(2)
}

// TestLostSession ends a session without its client's knowledge. The client then commits keys that it does not own.
func TestLostSession(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		ops  []coord.Op
		warm bool // the session's key exists
	}{
		{name: "plain, first", ops: []coord.Op{put("k", "no")}},
		{name: "plain", ops: []coord.Op{put("k", "no")}, warm: true},
		{name: "owned", ops: []coord.Op{owned("k", "no")}},
		{name: "TTL", ops: []coord.Op{{Key: "k", TTL: time.Hour}}, warm: true},
		{name: "owned and TTL", ops: []coord.Op{owned("own", "no"), {Key: "k", TTL: time.Hour}}},
		{name: "delete", ops: []coord.Op{{Key: "keep", Delete: true}}, warm: true},
		{name: "nothing", warm: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			prefix := rand.Text()
			options := Options{Endpoints: []string{shared.endpoint(t)}, Prefix: prefix, TTL: time.Minute}
			s, other := open(t, options), open(t, options)
			mustCommit(t, other, put("keep", "v"))
			if tc.warm {
				mustCommit(t, s, put("keep", "v"))
			}
			if _, err := other.cli.Revoke(t.Context(), s.lease); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Commit(t.Context(), nil, tc.ops); !errors.Is(err, coord.ErrSessionLost) {
				t.Errorf("Commit returned %v, want %v", err, coord.ErrSessionLost)
			}
			select {
			case <-s.Lost():
			default:
				t.Error("Lost is not closed")
			}
			followWatch(t, other, "").await(map[string]string{"keep": "v"})
		})
	}
}

// TestPrefixes checks that stores with different prefixes are separate.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	endpoint, prefix := []string{shared.endpoint(t)}, rand.Text()
	a := open(t, Options{Endpoints: endpoint, Prefix: prefix})
	b := open(t, Options{Endpoints: endpoint, Prefix: prefix + "/keys"})
	c := open(t, Options{Endpoints: endpoint, Prefix: prefix + "2"})
	for i, s := range []*Store{a, b, c} {
		mustCommit(t, s, put("k", string(rune('a'+i))))
	}
	followWatch(t, b, "").await(map[string]string{"k": "b"})
	followWatch(t, c, "").await(map[string]string{"k": "c"})
}
