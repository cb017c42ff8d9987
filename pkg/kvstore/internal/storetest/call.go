package storetest

import (
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// Call is one operation of a store. Tests play the same calls with the model, every Store and torch's clients, and
// compare the outcomes. tcpstore/testdata/py/drive.py reads and writes both as JSON.
type Call struct {
	Client  int    `json:"client"` // one of Clients
	Op      string `json:"op"`     // as torch names it
	Keys    []Text `json:"keys"`
	Values  []Text `json:"values"`
	Delta   int64  `json:"delta"`
	Later   bool   `json:"later"`   // the call is a wait in the background, which ends before the sequence does
	Timeout int    `json:"timeout"` // in ms
}

// Outcome is the result of a Call.
type Outcome struct {
	Values []Text `json:"values"`
	Number int64  `json:"number"`
	// Error is "timeout"; "refused" for an add to a value that is no number, where most servers close the connection;
	// or the text of an unexpected error.
	Error string `json:"error"`
}

// Text is a string of bytes, which JSON holds as base64.
type Text string

// Clients is the number of clients that share a store in a sequence of calls.
const Clients = 3

// The timeouts of calls, in ms.
const (
	ShortWait = 5      // for a key that will not be set
	LongWait  = 60_000 // for a key that is or will be present
)

// MarshalText implements [encoding.TextMarshaler].
func (s Text) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, []byte(s)), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Text) UnmarshalText(b []byte) error {
	raw, err := base64.StdEncoding.AppendDecode(nil, b)
	*s = Text(raw)
	return err
}

func (s Text) String() string {
	if len(s) > 60 {
		return fmt.Sprintf("%q… (%d bytes)", string(s[:20]), len(s))
	}
	return fmt.Sprintf("%q", string(s))
}

func (c Call) String() string {
	var args []string
	if len(c.Keys) > 0 {
		args = append(args, fmt.Sprint(c.Keys))
	}
	if len(c.Values) > 0 {
		args = append(args, fmt.Sprint(c.Values))
	}
	if c.Op == "add" {
		args = append(args, fmt.Sprint(c.Delta))
	}
	if c.Later {
		args = append(args, "in the background")
	}
	return fmt.Sprintf("client %d: %s(%s)", c.Client, c.Op, strings.Join(args, ", "))
}

func (o Outcome) String() string {
	return strings.TrimSpace(fmt.Sprintf("%v %d %s", o.Values, o.Number, o.Error))
}

// specialValues are values that stores may read or send differently. They start with texts that are nearly numbers.
var specialValues = []Text{
	"x", "7", "-3", "12abc", " \t\n\v\f\r+5", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
	"-", "+ 1", "007", "0x10", "abc", "\x00\xff\xfe", Text(strings.Repeat("0123456789abcdef", 6400)),
}

// SpecialValues returns a sequence for each special value and for the empty value. It reads, appends, compares and adds
// to the value; random sequences seldom do all of that with one value.
func SpecialValues() [][]Call {
	var sequences [][]Call
	for _, v := range append(slices.Clip(specialValues), "") {
		one := []Text{"k"}
		sequences = append(sequences, []Call{
			{Op: "multi_set", Keys: []Text{"k", "l", "k"}, Values: []Text{"other", v, v}},
			{Op: "multi_get", Keys: []Text{"l", "k", "l"}},
			{Op: "multi_get"},
			{Op: "check"},
			{Op: "set", Keys: one, Values: []Text{v}},
			{Op: "get", Keys: one},
			{Op: "append", Keys: one, Values: []Text{v}},
			{Op: "get", Keys: one},
			{Op: "set", Keys: one, Values: []Text{v}},
			{Op: "compare_set", Keys: one, Values: []Text{"other", "new"}},
			{Op: "compare_set", Keys: one, Values: []Text{v, v}},
			{Op: "add", Keys: one, Delta: 1},
			{Op: "set", Keys: one, Values: []Text{v}},
			{Op: "add", Keys: one, Delta: -1},
			{Op: "get", Keys: one},
			{Op: "delete_key", Keys: one},
			{Op: "delete_key", Keys: one},
			{Op: "compare_set", Keys: one, Values: []Text{v, "new"}},
			{Op: "check", Keys: one},
			{Op: "num_keys"},
		})
	}
	return sequences
}

// Calls generates sequences of calls. Without empty, no stored value is empty: torch's clients take 200 ms to send
// such a value.
func Calls(empty bool) *rapid.Generator[[]Call] {
	key := rapid.SampledFrom([]Text{
		"a", "b", "c", "a", "b", "c", "a/b", "", "\x00\xff\n", "ключ", Text(strings.Repeat("long", 100)),
	})
	values := slices.Clone(specialValues)
	if empty {
		values = append(values, "", "")
	}
	value := rapid.SampledFrom(values)
	expected := rapid.SampledFrom(append(values[:8:8], "", "", ""))
	delta := rapid.OneOf(rapid.Int64Range(-3, 3), rapid.Int64())
	one, some := rapid.SliceOfN(key, 1, 1), rapid.SliceOfN(key, 0, 4)
	op := rapid.SampledFrom([]string{
		"set", "get", "add", "compare_set", "wait", "delete_key", "check", "append", "multi_get", "multi_set", "num_keys",
		"set", "add", "compare_set", "append",
	})
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Call {
		c := Call{Client: rapid.IntRange(0, Clients-1).Draw(t, "client"), Op: op.Draw(t, "op")}
		keys := one
		if c.Op == "check" || c.Op == "wait" || strings.HasPrefix(c.Op, "multi") {
			keys = some
		}
		if c.Op != "num_keys" {
			c.Keys = keys.Draw(t, "keys")
		}
		switch c.Op {
		case "set", "append", "multi_set":
			c.Values = rapid.SliceOfN(value, len(c.Keys), len(c.Keys)).Draw(t, "values")
		case "compare_set":
			c.Values = []Text{expected.Draw(t, "expected"), value.Draw(t, "desired")}
		case "add":
			c.Delta = delta.Draw(t, "delta")
		case "wait":
			c.Later = rapid.Bool().Draw(t, "later")
		}
		return c
	}), 1, 24)
}

// FirstSeed returns the flag -rapid.seed, or a random seed if it is not set, and logs it.
func FirstSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64N(1 << 32)
	if given, err := strconv.ParseUint(flag.Lookup("rapid.seed").Value.String(), 10, 64); err == nil && given != 0 {
		seed = given
	}
	t.Logf("-rapid.seed %d", seed)
	return seed
}

// Target is what a sequence is played against.
type Target int

// The targets differ in the calls that they support.
const (
	OwnStores Target = iota // no torch
	Torch1                  // torch 1.13
	Torch2                  // torch 2.14, as Debian builds it
)

// Plan prepares a sequence for playing and returns the expected outcomes. It leaves out calls of clients that wait in
// the background, calls whose outcome would depend on timing, and calls that the target does not support. It sets the
// timeout of each call. At the end it sets the keys that background waits still miss.
func Plan(with Target, sequence []Call) (planned []Call, want []Outcome) {
	m := model{}
	busy := map[int]bool{}      // clients that wait in the background
	awaited := map[Text]bool{}  // the keys that they wait for
	timedOut := map[Text]bool{} // keys of waits that timed out
	for _, c := range sequence {
		_, missing := m.missing(c.Keys)
		in := func(keys map[Text]bool) bool {
			return slices.ContainsFunc(c.Keys, func(k Text) bool { return keys[k] })
		}
		c.Later = c.Later && c.Client != 0 && len(c.Keys) > 0
		blocks := missing && !c.Later && slices.Contains([]string{"get", "multi_get", "wait"}, c.Op)
		switch {
		case busy[c.Client], c.Op == "delete_key" && in(awaited):
			continue
		case with != OwnStores && c.Op == "compare_set" && missing && in(awaited):
			continue
		case with == Torch1 && slices.Contains([]string{"check", "append", "multi_get", "multi_set"}, c.Op):
			continue
		case with == Torch1 && (slices.Contains([]string{"set", "add", "compare_set"}, c.Op) || c.Later) && in(timedOut):
			continue
		case with == Torch1 && blocks && in(awaited):
			continue
		case with == Torch1 && len(awaited) > 0 && slices.Contains([]string{"get", "compare_set"}, c.Op):
			continue // its module makes Python objects without the GIL, while the waiting thread may run
		}
		c.Timeout = LongWait
		var o Outcome
		if !c.Later {
			o = m.do(c)
		}
		for _, key := range c.Keys {
			if c.Later {
				awaited[key] = true
			}
			timedOut[key] = timedOut[key] || blocks
		}
		busy[c.Client] = c.Later
		if blocks {
			c.Timeout = ShortWait
		}
		planned, want = append(planned, c), append(want, o)
	}
	for _, key := range slices.Sorted(maps.Keys(awaited)) {
		if _, missing := m.missing([]Text{key}); missing {
			c := Call{Op: "set", Keys: []Text{key}, Values: []Text{"at last"}, Timeout: LongWait}
			planned, want = append(planned, c), append(want, m.do(c))
		}
	}
	return planned, want
}

// Play plays a sequence, as drive.py does with torch's clients. The stores are handles on the same store.
func Play(ctx context.Context, stores []kvstore.Store, calls []Call) ([]Outcome, error) {
	before, err := stores[0].NumKeys(ctx)
	if err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, len(calls))
	var later sync.WaitGroup
	defer later.Wait()
	for i, c := range calls {
		store := stores[c.Client]
		if c.Later {
			later.Go(func() { outcomes[i] = perform(ctx, store, c) })
			continue
		}
		outcomes[i] = perform(ctx, store, c)
		if c.Op == "num_keys" {
			outcomes[i].Number -= before
		}
	}
	later.Wait()
	return outcomes, nil
}

// perform carries out c on s.
func perform(ctx context.Context, s kvstore.Store, c Call) Outcome {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.Timeout)*time.Millisecond)
	defer cancel()
	keys := make([]string, len(c.Keys))
	for i, key := range c.Keys {
		keys[i] = string(key)
	}
	values := make([][]byte, len(c.Values))
	for i, value := range c.Values {
		values[i] = []byte(value)
	}
	var got [][]byte
	var o Outcome
	var yes bool
	var err error
	switch c.Op {
	case "set":
		err = s.Set(ctx, keys[0], values[0])
	case "get":
		got = make([][]byte, 1)
		got[0], err = s.Get(ctx, keys[0])
	case "add":
		o.Number, err = s.Add(ctx, keys[0], c.Delta)
	case "compare_set":
		got = make([][]byte, 1)
		got[0], err = s.CompareSet(ctx, keys[0], values[0], values[1])
	case "check":
		yes, err = s.Check(ctx, keys...)
	case "wait":
		err = s.Wait(ctx, keys...)
	case "num_keys":
		o.Number, err = s.NumKeys(ctx)
	case "delete_key":
		yes, err = s.Delete(ctx, keys[0])
	case "append":
		err = s.Append(ctx, keys[0], values[0])
	case "multi_get":
		got, err = s.MultiGet(ctx, keys...)
	case "multi_set":
		pairs := make([]kvstore.Pair, len(keys))
		for i := range keys {
			pairs[i] = kvstore.Pair{Key: keys[i], Value: values[i]}
		}
		err = s.MultiSet(ctx, pairs...)
	default:
		panic("no operation " + c.Op)
	}
	switch {
	case errors.Is(err, kvstore.ErrTimeout):
		return Outcome{Error: "timeout"}
	case errors.Is(err, kvstore.ErrNotNumber), c.Op == "add" && errors.Is(err, kvstore.ErrConnection):
		return Outcome{Error: "refused"}
	case err != nil:
		return Outcome{Error: err.Error()}
	}
	if yes {
		o.Number = 1
	}
	for _, value := range got {
		o.Values = append(o.Values, Text(value))
	}
	return o
}
