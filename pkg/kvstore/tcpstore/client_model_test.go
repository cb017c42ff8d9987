package tcpstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
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

// register is the state of one key in the linearizability model.
type register struct {
	present bool
	value   int64
}

// action is a call on one key. Its values are numbers.
type action struct {
	op       op
	key      int
	from, to int64
}

// result of an action: the value after a get or a compare and set, the sum, or 1 for yes.
type result int64

const missing result = -1 << 62

// registers is the model: each key is an independent register.
var registers = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, 3)
		for _, o := range history {
			key := o.Input.(action).key
			parts[key] = append(parts[key], o)
		}
		return parts
	},
	Init: func() any { return register{} },
	Step: func(state, input, output any) (bool, any) {
		r, in, out := state.(register), input.(action), output.(result)
		switch in.op {
		case opSet:
			return true, register{true, in.to}
		case opGet:
			return r.present && out == result(r.value), r
		case opAdd:
			sum := r.value + in.to
			return out == result(sum), register{true, sum}
		case opCompareSet:
			switch {
			case !r.present:
				return out == missing, r
			case r.value == in.from:
				return out == result(in.to), register{true, in.to}
			}
			return out == result(r.value), r
		case opCheck:
			return (out == 1) == r.present, r
		default: // opDelete
			return (out == 1) == r.present, register{}
		}
	},
}

// act carries out an action.
func act(ctx context.Context, c *Client, a action) (out result, err error) {
	key := fmt.Sprint("register", a.key)
	text := func(n int64) []byte { return fmt.Append(nil, n) }
	var value []byte
	var yes bool
	switch a.op {
	case opSet:
		return 0, c.Set(ctx, key, text(a.to))
	case opGet:
		value, err = c.Get(ctx, key)
	case opAdd:
		sum, err := c.Add(ctx, key, a.to)
		return result(sum), err
	case opCompareSet:
		value, err = c.CompareSet(ctx, key, text(a.from), text(a.to))
		if string(value) == string(text(a.from)) && a.from != a.to {
			return missing, err
		}
	case opCheck:
		yes, err = c.Check(ctx, key)
	default:
		yes, err = c.Delete(ctx, key)
	}
	if value != nil && err == nil {
		_, err = fmt.Sscan(string(value), &out)
	}
	if yes {
		out = 1
	}
	return out, err
}

// TestClientLinearizable records what concurrent calls return and looks for an order that explains it.
func TestClientLinearizable(t *testing.T) {
	const workers, actions = 5, 40
	rounds := testenv.Repeat(t, 15, 3000)
	kinds := map[string][]ClientOptions{ // workers share the clients in turn
		"one client":            {{}},
		"one client, torch 1.x": {{Protocol: ProtocolV1}},
		"one client as torch's": {{unconfirmed: true}},
		"a client each":         {{}, {}, {Protocol: ProtocolV1}, {}, {Protocol: ProtocolV1}},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			for seed := range rounds {
				t.Run("", func(t *testing.T) { checkLinearizable(t, kind, uint64(seed), workers, actions) })
			}
		})
	}
}

func checkLinearizable(t *testing.T, kind []ClientOptions, seed uint64, workers, actions int) {
	t.Helper()
	_, addr := startServer(t, ServerOptions{})
	var clients []*Client
	for _, opts := range kind {
		clients = append(clients, dialClient(t, addr, opts))
	}
	var clock atomic.Int64
	histories := make([][]porcupine.Operation, workers)
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			c := clients[worker%len(clients)]
			random := rand.New(rand.NewPCG(seed, uint64(worker)))
			do := func(a action) {
				begin := clock.Add(1)
				out, err := act(t.Context(), c, a)
				if err != nil {
					t.Error(err)
				}
				histories[worker] = append(histories[worker], porcupine.Operation{
					ClientId: worker, Input: a, Output: out, Call: begin, Return: clock.Add(1),
				})
			}
			do(action{op: opSet, key: 2, to: 1}) // nobody deletes this key, so a get never blocks
			for range actions {
				a := action{key: random.IntN(3), from: random.Int64N(4), to: 4 + random.Int64N(4)}
				if a.op = []op{opSet, opAdd, opCompareSet, opCheck, opDelete}[random.IntN(5)]; a.key == 2 && a.op == opDelete {
					a.op = opGet
				}
				if a.op != opCompareSet {
					a.to = random.Int64N(4)
				}
				do(a)
			}
		})
	}
	wg.Wait()
	var history []porcupine.Operation
	for _, h := range histories {
		history = append(history, h...)
	}
	switch porcupine.CheckOperationsTimeout(registers, history, time.Minute) {
	case porcupine.Illegal:
		t.Fatalf("seed %d: no order of the calls explains what they returned: %+v", seed, history)
	case porcupine.Unknown:
		t.Logf("seed %d: a history is too long to judge in a minute", seed)
	}
}
