package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// Mix says which calls of a concurrent history may use the same keys.
type Mix int

const (
	// SeparateKeys keeps deletes and adds apart from other calls. A client's Get is a wait and then a get, between which
	// a deleted key may vanish, and a server closes the connection on an add to a value that is no number.
	SeparateKeys Mix = iota

	// SharedKeys lets every call use every key. It is for stores whose calls are atomic.
	SharedKeys
)

// Linearizable lets several goroutines use a store concurrently. It looks for an order of their calls, each at a
// moment between its start and its end, in which the model has the same outcomes.
func Linearizable(t *testing.T, mix Mix, open Opener) {
	t.Helper()
	const goroutines = 5
	each := 12
	if mix == SharedKeys {
		each = 40 // longer histories overlap more
	}
	seed := FirstSeed(t)
	for round := range testenv.Repeat(t, 40, 4000) {
		stores := open(t)
		before, err := stores[0].NumKeys(t.Context()) // some stores keep keys of their own
		if err != nil {
			t.Fatal(err)
		}
		histories := make([][]porcupine.Operation, goroutines)
		start := time.Now()
		var wg sync.WaitGroup
		for id := range goroutines {
			random := rand.New(rand.NewPCG(seed, uint64(round*goroutines+id)))
			wg.Go(func() {
				for range each {
					c := concurrentCall(random, mix)
					c.Client = id % Clients
					begin := time.Since(start)
					got := perform(t.Context(), stores[c.Client], c)
					end := time.Since(start)
					if c.Op == "num_keys" {
						got.Number -= before
					}
					histories[id] = append(histories[id], observed(id, c, got, begin, end)...)
				}
			})
		}
		wg.Wait()
		var history []porcupine.Operation
		for _, h := range histories {
			history = append(history, h...)
		}
		switch result := porcupine.CheckOperationsTimeout(storeModel, history, 20*time.Second); result {
		case porcupine.Ok:
		case porcupine.Unknown:
			t.Errorf("round %d: porcupine has not decided in time", round)
		default:
			var text strings.Builder
			for _, op := range history {
				fmt.Fprintf(&text, "%9d to %9d ns, %s\n", op.Call, op.Return, storeModel.DescribeOperation(op.Input, op.Output))
			}
			t.Fatalf("round %d: no order explains\n%s", round, &text)
		}
	}
}

// concurrentCall returns a random call that goroutines may make concurrently.
func concurrentCall(random *rand.Rand, mix Mix) Call {
	pick := func(from ...Text) Text { return from[random.IntN(len(from))] }
	c := Call{Timeout: LongWait, Keys: []Text{pick("a", "b")}}
	value := func() Text { return Text(fmt.Sprint(random.IntN(3))) }
	switch random.IntN(10) {
	case 0:
		c.Op, c.Values = "set", []Text{value()}
	case 1:
		c.Op, c.Values = "append", []Text{value()}
	case 2:
		c.Op, c.Values = "compare_set", []Text{pick("", "0", "1", "2"), value()}
	case 3:
		c.Op, c.Keys, c.Delta = "add", []Text{"n"}, int64(1+random.IntN(3))
	case 4:
		c.Op, c.Timeout = "get", ShortWait
	case 5:
		c.Op, c.Timeout, c.Keys = "multi_get", ShortWait, []Text{"a", "b"}
	case 6:
		c.Op, c.Keys, c.Values = "multi_set", []Text{"b", "a"}, []Text{value(), value()}
	case 7:
		c.Op, c.Timeout, c.Keys = "wait", ShortWait, []Text{"a", "b", "gone"}
	case 8:
		c.Op, c.Keys, c.Values = "compare_set", []Text{"gone"}, []Text{"", value()}
		if random.IntN(2) == 0 {
			c.Op, c.Values = "delete_key", nil
		}
	default:
		c.Op, c.Keys = "check", []Text{"gone", pick("a", "b", "n")}
		if random.IntN(2) == 0 {
			c.Op, c.Keys = "num_keys", nil
		}
	}
	if mix == SharedKeys && len(c.Keys) == 1 {
		c.Keys = []Text{pick("a", "b", "n")}
	}
	return c
}

// observed returns the operations that the checker gets for a call. A wait for several keys that succeeded becomes one
// wait per key, because each key counts at a moment of its own.
func observed(id int, c Call, got Outcome, begin, end time.Duration) []porcupine.Operation {
	op := porcupine.Operation{ClientId: id, Input: c, Output: got, Call: begin.Nanoseconds(), Return: end.Nanoseconds()}
	if c.Op != "wait" || got.Error != "" {
		return []porcupine.Operation{op}
	}
	var ops []porcupine.Operation
	for i := range c.Keys {
		one := c
		one.Keys = c.Keys[i : i+1]
		op.Input = one
		ops = append(ops, op)
	}
	return ops
}

// storeModel adapts model to the checker. A call that timed out had no effect and proves nothing: its time may have
// been over before it began.
var storeModel = porcupine.Model{
	Init: func() any { return model{} },
	Step: func(state, input, output any) (bool, any) {
		if output.(Outcome).Error == "timeout" {
			return true, state
		}
		next := maps.Clone(state.(model))
		return same(next.do(input.(Call)), output.(Outcome)), next
	},
	Equal: func(a, b any) bool { return maps.Equal(a.(model), b.(model)) },
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%s gives %s", input, output)
	},
}
