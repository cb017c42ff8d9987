package keyspace

import (
	"errors"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestCompareSet(t *testing.T) {
	tests := []struct {
		name              string
		held              []byte // nil: the key is missing
		expected, desired string
		want              string
		wantHeld          []byte
	}{
		{"missing, expected empty", nil, "", "v", "v", []byte("v")},
		{"missing, expected not empty", nil, "exp", "v", "exp", nil},
		{"missing, both empty", nil, "", "", "", []byte{}},
		{"equal", []byte("a"), "a", "b", "b", []byte("b")},
		{"different", []byte("a"), "x", "b", "a", []byte("a")},
		{"held, expected empty", []byte("a"), "", "b", "a", []byte("a")},
		{"held empty, expected empty", []byte{}, "", "b", "b", []byte("b")},
		{"held empty, expected not empty", []byte{}, "x", "b", "", []byte{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := New()
			if tt.held != nil {
				c.Set("k", tt.held)
			}
			if got := string(c.CompareSet("k", []byte(tt.expected), []byte(tt.desired))); got != tt.want {
				t.Errorf("compareSet = %q, want %q", got, tt.want)
			}
			if diff := cmp.Diff(tt.wantHeld, held(c, "k")); diff != "" {
				t.Errorf("held afterwards (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAdd(t *testing.T) {
	tests := []struct {
		held  string
		delta int64
		want  int64
		fails bool
	}{
		{held: "5", delta: -7, want: -2},
		{held: "12abc", delta: 1, want: 13},
		{held: " \t\n\v\f\r+7", delta: 1, want: 8},
		{held: "-3.9", delta: 0, want: -3},
		{held: "0x10", delta: 1, want: 1},
		{held: "1_000", delta: 1, want: 2},
		{held: "007", delta: 1, want: 8},
		{held: "9\x00", delta: 1, want: 10},
		{held: "9223372036854775807", delta: 1, want: -9223372036854775808},
		{held: "-9223372036854775808", delta: -1, want: 9223372036854775807},
		{held: "9223372036854775808", fails: true},
		{held: "-9223372036854775809", fails: true},
		{held: "", fails: true},
		{held: "  ", fails: true},
		{held: "-", fails: true},
		{held: "+ 1", fails: true},
		{held: "--1", fails: true},
		{held: "abc", fails: true},
		{held: "\x001", fails: true},
	}
	for _, tt := range tests {
		t.Run(tt.held, func(t *testing.T) {
			c := New()
			c.Set("k", []byte(tt.held))
			got, err := c.Add("k", tt.delta)
			if errors.Is(err, ErrNotNumber) != tt.fails || got != tt.want {
				t.Fatalf("add = %d, %v; want %d, failure %v", got, err, tt.want, tt.fails)
			}
			if held := string(held(c, "k")); tt.fails && held != tt.held {
				t.Errorf("a failed add left %q", held)
			}
		})
	}
}

func TestAppendLeavesSharedValuesAlone(t *testing.T) {
	c := New()
	var handedOut, want [][]byte
	for range 20 {
		c.Append("k", []byte("abc"))
		value, _ := c.Get("k")
		handedOut = append(handedOut, value)
		want = append(want, slices.Clone(value))
	}
	if diff := cmp.Diff(want, handedOut); diff != "" {
		t.Errorf("values changed after they were handed out (-want +got):\n%s", diff)
	}
}

// TestSpaceModel compares Space with a model that keeps strings in a map and searches all waits.
func TestSpaceModel(t *testing.T) {
	number := regexp.MustCompile(`^[ \t\n\v\f\r]*([+-]?[0-9]+)`)
	wrap := new(big.Int).Lsh(big.NewInt(1), 64)
	keys := []string{"a", "b", "c", "d"}
	key := rapid.SampledFrom(keys)
	someKeys := rapid.SliceOfN(key, 0, 5)
	value := rapid.OneOf(
		rapid.SampledFrom([]string{"", "x", "7", "12abc", "9223372036854775807", "-"}),
		rapid.StringMatching(`[ \n]?[+-]?[0-9]{0,19}[a-z]?`))

	type wait struct {
		missing map[string]bool
		over    bool // in the model
		real    *Waiter
		calls   int // of its release
	}
	rapid.Check(t, func(t *rapid.T) {
		c := New()
		model := map[string]string{}
		queues := map[string][]string{}
		var waits []*wait
		arrived := func(w *wait, key string) {
			delete(w.missing, key)
			w.over = w.over || len(w.missing) == 0
		}
		store := func(key, value string) {
			model[key] = value
			for _, w := range waits {
				arrived(w, key)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				k, v := key.Draw(t, "key"), value.Draw(t, "value")
				c.Set(k, []byte(v))
				store(k, v)
			},
			"append": func(t *rapid.T) {
				k, v := key.Draw(t, "key"), value.Draw(t, "value")
				c.Append(k, []byte(v))
				store(k, model[k]+v)
			},
			"delete": func(t *rapid.T) {
				k := key.Draw(t, "key")
				_, want := model[k]
				if got := c.Delete(k); got != want {
					t.Fatalf("delete = %v, want %v", got, want)
				}
				delete(model, k)
			},
			"compareSet": func(t *rapid.T) {
				k, expected, desired := key.Draw(t, "key"), value.Draw(t, "expected"), value.Draw(t, "desired")
				want := expected
				if held, ok := model[k]; ok {
					want = held
				}
				if want == expected && (expected == "" || model[k] == expected) {
					want = desired
					defer store(k, desired)
				}
				if got := string(c.CompareSet(k, []byte(expected), []byte(desired))); got != want {
					t.Fatalf("compareSet = %q, want %q", got, want)
				}
			},
			"add": func(t *rapid.T) {
				k, delta := key.Draw(t, "key"), rapid.Int64().Draw(t, "delta")
				got, err := c.Add(k, delta)
				sum := new(big.Int)
				if held, ok := model[k]; ok {
					m := number.FindStringSubmatch(held)
					if m != nil {
						sum.SetString(m[1], 10)
					}
					if m == nil || !sum.IsInt64() {
						if !errors.Is(err, ErrNotNumber) {
							t.Fatalf("add to %q = %d, %v", held, got, err)
						}
						return
					}
				}
				sum.Add(sum, big.NewInt(delta))
				for !sum.IsInt64() {
					if sum.Sign() > 0 {
						sum.Sub(sum, wrap)
					} else {
						sum.Add(sum, wrap)
					}
				}
				if err != nil || got != sum.Int64() {
					t.Fatalf("add = %d, %v; want %v", got, err, sum)
				}
				store(k, sum.String())
			},
			"wait": func(t *rapid.T) {
				ks := someKeys.Draw(t, "keys")
				w := &wait{missing: map[string]bool{}}
				for _, k := range ks {
					if _, ok := model[k]; !ok && len(queues[k]) == 0 {
						w.missing[k] = true
					}
				}
				w.real = c.Wait(ks, func() { w.calls++ })
				if (w.real == nil) != (len(w.missing) == 0) {
					t.Fatalf("wait(%q) = %v with %v missing", ks, w.real, w.missing)
				}
				if w.real != nil {
					waits = append(waits, w)
				}
			},
			"push": func(t *rapid.T) {
				k, v := key.Draw(t, "key"), value.Draw(t, "value")
				c.Push(k, []byte(v))
				queues[k] = append(queues[k], v)
				if i := slices.IndexFunc(waits, func(w *wait) bool { return w.missing[k] }); i >= 0 {
					arrived(waits[i], k)
				}
			},
			"pop": func(t *rapid.T) {
				k := key.Draw(t, "key")
				got, length := c.Pop(k)
				if length != len(queues[k]) {
					t.Fatalf("pop: length %d, want %d", length, len(queues[k]))
				}
				if length > 0 {
					if want := queues[k][0]; string(got) != want {
						t.Fatalf("pop = %q, want %q", got, want)
					}
					queues[k] = queues[k][1:]
				}
			},
			"arrive": func(t *rapid.T) {
				k := key.Draw(t, "key")
				held, there := model[k]
				if there && !number.MatchString(held) {
					t.Skip("no number")
				}
				members := rapid.Int64Range(0, 5).Draw(t, "members")
				w := &wait{missing: map[string]bool{k: true}}
				arrived, err := c.Arrive(k, members, func() { w.calls++ })
				if err != nil {
					if !errors.Is(err, ErrNotNumber) {
						t.Fatal(err)
					}
					return
				}
				count, _ := c.Get(k)
				model[k] = string(count) // TestAdd checks the number
				if n, err := ParseInt(count); err != nil || (n >= members) != (arrived == nil) {
					t.Fatalf("arrival %q of %d waits: %v", count, members, arrived != nil)
				}
				if arrived == nil {
					store(k, model[k])
					return
				}
				w.real = arrived
				waits = append(waits, w)
			},
			"cancel": func(t *rapid.T) {
				if len(waits) == 0 {
					t.Skip("no wait")
				}
				i := rapid.IntRange(0, len(waits)-1).Draw(t, "wait")
				got := slices.Sorted(slices.Values(c.Cancel(waits[i].real)))
				want := slices.Sorted(maps.Keys(waits[i].missing))
				if !slices.Equal(got, want) {
					t.Fatalf("cancel = %q, want %q", got, want)
				}
				waits = slices.Delete(waits, i, i+1)
			},
			"": func(t *rapid.T) {
				if got := c.NumKeys(); got != int64(len(model)) {
					t.Fatalf("numKeys = %d, want %d", got, len(model))
				}
				size := int64(0)
				for _, e := range c.data {
					size += EntryCost + 1 + int64(cap(e.value))
				}
				for _, k := range keys {
					if len(queues[k]) > 0 {
						size += EntryCost + 1
					}
					for _, v := range c.queued(k) {
						size += EntryCost + int64(cap(v))
					}
					got, ok := c.Get(k)
					want, there := model[k]
					has := there || len(queues[k]) > 0
					if ok != there || string(got) != want || c.Has(k) != has || c.QueueLen(k) != len(queues[k]) {
						t.Fatalf("get(%q) = %q, %v; want %q, %v", k, got, ok, want, there)
					}
				}
				if c.size != size {
					t.Fatalf("Space says it has %d bytes, want %d", c.size, size)
				}
				waitedFor := map[string]bool{}
				for _, w := range waits {
					if (w.calls == 1) != w.over || w.calls > 1 {
						t.Fatalf("release was called %d times, wait over: %v", w.calls, w.over)
					}
					maps.Copy(waitedFor, w.missing)
				}
				if len(c.waiting) != len(waitedFor) {
					t.Fatalf("Space keeps waits for %d keys, want %d", len(c.waiting), len(waitedFor))
				}
			},
		})
	})
}

func TestWaitersAreReleasedInOrder(t *testing.T) {
	c := New()
	var order []int
	for i := range 5 {
		c.Wait([]string{"k"}, func() { order = append(order, i) })
	}
	c.Set("k", nil)
	if diff := cmp.Diff([]int{0, 1, 2, 3, 4}, order); diff != "" {
		t.Errorf("order of release (-want +got):\n%s", diff)
	}
}

// held returns the value of key, or nil.
func held(c *Space, key string) []byte {
	value, _ := c.Get(key)
	return value
}

// queued returns the values in the queue of key.
func (s *Space) queued(key string) (values [][]byte) {
	if q := s.queues[key]; q != nil {
		for e := q.values.Front(); e != nil; e = e.Next() {
			values = append(values, e.Value.([]byte))
		}
	}
	return values
}
