package tcpstore

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/keyspace"
)

// TestClientModel compares clients of every kind, which share a server, with a HashStore.
func TestClientModel(t *testing.T) {
	key := rapid.SampledFrom([]string{"a", "b", "c/d", "", "/"})
	someKeys := rapid.SliceOfN(key, 0, 5)
	value := rapid.OneOf(
		rapid.SampledFrom([]string{"", "x", "7", "12abc", "9223372036854775807", "-"}),
		rapid.StringN(0, 10, -1))
	ctx := t.Context()
	s, addr := startServer(t, ServerOptions{})
	dial(t, addr, ProtocolV2).ping()
	rapid.Check(t, func(t *rapid.T) {
		s.inLoop(func(l *loop) { l.store = keyspace.New() })
		var clients []*Client
		for _, opts := range []ClientOptions{
			{}, {}, {Protocol: ProtocolV1}, {unconfirmed: true}, {Protocol: ProtocolV1, unconfirmed: true},
		} {
			c, err := Dial(ctx, addr, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			clients = append(clients, c)
		}
		model := kvstore.NewHashStore()
		client := rapid.SampledFrom(clients)
		// both makes a call on a client and on the model. The order does not matter, because both have the same
		// content.
		both := func(t *rapid.T, call func(s kvstore.Store) (any, error)) {
			t.Helper()
			c := client.Draw(t, "client")
			got, err := call(c)
			want, wantErr := call(model)
			if (err != nil) != (wantErr != nil) || !cmp.Equal(want, got) && err == nil {
				t.Fatalf("%v client: %q, %v; want %q, %v", c.opts, got, err, want, wantErr)
			}
			keys, err := c.NumKeys(ctx) // the server has carried out an earlier unconfirmed call by now
			modelKeys, _ := model.NumKeys(ctx)
			if err != nil || keys != modelKeys {
				t.Fatalf("%d keys, %v; want %d", keys, err, modelKeys)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				k, v := key.Draw(t, "key"), value.Draw(t, "value")
				both(t, func(s kvstore.Store) (any, error) { return nil, s.Set(ctx, k, []byte(v)) })
			},
			"append": func(t *rapid.T) {
				k, v := key.Draw(t, "key"), value.Draw(t, "value")
				both(t, func(s kvstore.Store) (any, error) {
					if c, ok := s.(*Client); ok && c.opts.Protocol == ProtocolV1 {
						if err := c.Append(ctx, k, []byte(v)); !errors.Is(err, kvstore.ErrProtocol) {
							t.Fatalf("Append = %v, want ErrProtocol", err)
						}
						s = clients[0]
					}
					return nil, s.Append(ctx, k, []byte(v))
				})
			},
			"multi set": func(t *rapid.T) {
				var pairs []kvstore.Pair
				for _, k := range someKeys.Draw(t, "keys") {
					pairs = append(pairs, kvstore.Pair{Key: k, Value: []byte(value.Draw(t, "value"))})
				}
				both(t, func(s kvstore.Store) (any, error) { return nil, s.MultiSet(ctx, pairs...) })
			},
			"add": func(t *rapid.T) {
				k, delta := key.Draw(t, "key"), rapid.Int64().Draw(t, "delta")
				both(t, func(s kvstore.Store) (any, error) { return s.Add(ctx, k, delta) })
			},
			"compare set": func(t *rapid.T) {
				k, expected, desired := key.Draw(t, "key"), value.Draw(t, "expected"), value.Draw(t, "desired")
				both(t, func(s kvstore.Store) (any, error) {
					held, err := s.CompareSet(ctx, k, []byte(expected), []byte(desired))
					return string(held), err
				})
			},
			"check": func(t *rapid.T) {
				keys := someKeys.Draw(t, "keys")
				both(t, func(s kvstore.Store) (any, error) { return s.Check(ctx, keys...) })
			},
			"delete": func(t *rapid.T) {
				k := key.Draw(t, "key")
				both(t, func(s kvstore.Store) (any, error) { return s.Delete(ctx, k) })
			},
			"get": func(t *rapid.T) {
				keys := someKeys.Draw(t, "keys")
				if ok, _ := model.Check(ctx, keys...); !ok {
					t.Skip("it would block")
				}
				both(t, func(s kvstore.Store) (any, error) {
					var got []string
					for _, key := range keys {
						value, err := s.Get(ctx, key)
						if err != nil {
							return nil, err
						}
						got = append(got, string(value))
					}
					values, err := s.MultiGet(ctx, keys...)
					for _, value := range values {
						got = append(got, string(value))
					}
					return got, errors.Join(err, s.Wait(ctx, keys...))
				})
			},
		})
	})
}
