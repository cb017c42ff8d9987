package filestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/keyspace"
)

// storeOp is an operation on a store, and a request to testdata/py/stores.py.
type storeOp struct {
	Store  string   `json:"store"`
	Op     string   `json:"op"`
	Path   string   `json:"path,omitempty"`
	Keys   []string `json:"keys"`
	Values [][]byte `json:"values"`
	N      int64    `json:"n"`
}

// storeResult is its result, and the reply of testdata/py/stores.py.
type storeResult struct {
	Values [][]byte `json:"values"`
	N      int64    `json:"n"`
	Err    string   `json:"err"`
}

// fileModel is a simple model of a Store: the keys as in the file, and the bytes of the file.
type fileModel struct {
	data map[string]string
	file []byte
}

func (m *fileModel) write(key, value string) {
	for _, s := range []string{key, value} {
		m.file = binary.LittleEndian.AppendUint32(m.file, uint32(len(s)))
		m.file = append(m.file, s...)
	}
	if key[0] == '-' {
		delete(m.data, key[1:])
	} else {
		m.data[key] = value
	}
}

func (m *fileModel) count(key string, delta int) int {
	n, _ := strconv.Atoi(m.data[key])
	m.write(key, strconv.Itoa(n+delta))
	return n + delta
}

func (m *fileModel) open() { m.count("refcount/", 1) }

// close reports whether the file is removed.
func (m *fileModel) close(workers int64) bool {
	shut := m.count("cleanup/", 1)
	return m.count("refcount/", -1) == 0 && workers > 0 && int64(shut) >= workers
}

func (m *fileModel) do(op storeOp) (r storeResult) {
	switch op.Op {
	case "num_keys":
		return storeResult{N: int64(len(m.data))}
	case "list_keys":
		for _, key := range slices.Sorted(maps.Keys(m.data)) {
			if key[0] == '/' {
				key = key[1:]
			}
			r.Values = append(r.Values, []byte(key))
		}
		slices.SortFunc(r.Values, slices.Compare)
		return r
	case "multi_set":
		for i, key := range op.Keys {
			m.write("/"+key, string(op.Values[i]))
		}
		return r
	case "check", "wait", "multi_get", "get":
		for _, key := range op.Keys {
			value, ok := m.data["/"+key]
			switch {
			case !ok && op.Op == "check":
				return storeResult{}
			case !ok:
				return storeResult{Err: "timeout"}
			case op.Op == "multi_get" || op.Op == "get":
				r.Values = append(r.Values, []byte(value))
			}
		}
		if op.Op == "check" {
			r.N = 1
		}
		return r
	}
	key := "/" + op.Keys[0]
	held, there := m.data[key]
	switch op.Op {
	case "set":
		m.write(key, string(op.Values[0]))
	case "append":
		m.write(key, held+string(op.Values[0]))
	case "delete":
		m.write("-"+key, "")
		if there {
			r.N = 1
		}
	case "compare_set":
		expected, desired := string(op.Values[0]), string(op.Values[1])
		result := held
		switch {
		case !there && expected != "":
			result = expected
		case held == expected:
			m.write(key, desired)
			result = desired
		}
		r.Values = [][]byte{[]byte(result)}
	case "add":
		var n int64
		if held != "" {
			var err error
			if n, err = keyspace.ParseInt([]byte(held)); err != nil {
				return storeResult{Err: "number"}
			}
		}
		r.N = n + op.N
		m.write(key, strconv.FormatInt(r.N, 10))
	default:
		panic(op.Op)
	}
	return r
}

// doStoreOp performs op on a Go store.
func doStoreOp(ctx context.Context, s *Store, op storeOp) (r storeResult) {
	var err error
	var value []byte
	switch op.Op {
	case "num_keys":
		r.N, err = s.NumKeys(ctx)
	case "list_keys":
		var keys []string
		keys, err = s.ListKeys(ctx)
		for _, key := range keys {
			r.Values = append(r.Values, []byte(key))
		}
	case "multi_set":
		var pairs []kvstore.Pair
		for i, key := range op.Keys {
			pairs = append(pairs, kvstore.Pair{Key: key, Value: op.Values[i]})
		}
		err = s.MultiSet(ctx, pairs...)
	case "check":
		var ok bool
		if ok, err = s.Check(ctx, op.Keys...); ok {
			r.N = 1
		}
	case "wait":
		ctx, cancel := context.WithTimeout(ctx, time.Duration(op.N)*time.Millisecond)
		defer cancel()
		err = s.Wait(ctx, op.Keys...)
	case "multi_get":
		r.Values, err = s.MultiGet(ctx, op.Keys...)
	case "get":
		value, err = s.Get(ctx, op.Keys[0])
		r.Values = [][]byte{value}
	case "set":
		err = s.Set(ctx, op.Keys[0], op.Values[0])
	case "append":
		err = s.Append(ctx, op.Keys[0], op.Values[0])
	case "delete":
		var ok bool
		if ok, err = s.Delete(ctx, op.Keys[0]); ok {
			r.N = 1
		}
	case "compare_set":
		value, err = s.CompareSet(ctx, op.Keys[0], op.Values[0], op.Values[1])
		r.Values = [][]byte{value}
	case "add":
		r.N, err = s.Add(ctx, op.Keys[0], op.N)
	}
	switch {
	case errors.Is(err, kvstore.ErrNotNumber):
		return storeResult{Err: "number"}
	case errors.Is(err, kvstore.ErrTimeout):
		return storeResult{Err: "timeout"}
	case err != nil:
		return storeResult{Err: err.Error()}
	}
	return r
}

var (
	opKeys   = rapid.SampledFrom([]string{"a", "b", "", "-a", "-", "/", "refcount/", "ü", "\x00z\n"})
	opValues = rapid.OneOf(
		rapid.SampledFrom([]string{
			"", "", "x", "7", "12abc", " \n+5", "9223372036854775807", "9223372036854775808", "-", "\x00\xff",
		}),
		rapid.Map(rapid.IntRange(0, 9_000), func(n int) string { return string(slices.Repeat([]byte{byte(n)}, n)) }))
	opDeltas = rapid.OneOf(rapid.Int64(), rapid.Int64Range(-2, 2))
)

// drawOp draws an operation on a random store, or "reopen". Waits that would time out are rare, because they take
// time.
func drawOp(t *rapid.T, m *fileModel, stores []string) storeOp {
	op := storeOp{Store: rapid.SampledFrom(stores).Draw(t, "store"), Keys: []string{opKeys.Draw(t, "key")}, N: 5}
	op.Op = rapid.SampledFrom([]string{
		"set", "set", "get", "add", "add", "compare_set", "compare_set", "check", "num_keys", "list_keys", "delete",
		"delete", "append", "multi_get", "multi_set", "wait", "reopen",
	}).Draw(t, "op")
	values := func(n int) {
		for range n {
			op.Values = append(op.Values, []byte(opValues.Draw(t, "value")))
		}
	}
	switch op.Op {
	case "set", "append":
		values(1)
	case "add":
		op.N = opDeltas.Draw(t, "delta")
	case "compare_set":
		values(2)
		if rapid.Bool().Draw(t, "expect what is held") {
			op.Values[0] = []byte(m.data["/"+op.Keys[0]])
		}
	case "check", "multi_get", "wait":
		op.Keys = rapid.SliceOfN(opKeys, 0, 3).Draw(t, "keys")
	case "multi_set":
		op.Keys = rapid.SliceOfN(opKeys, 0, 3).Draw(t, "keys")
		values(len(op.Keys))
	}
	waits := op.Op == "get" || op.Op == "multi_get" || op.Op == "wait"
	if waits && m.do(op).Err != "" && (op.Op != "wait" || rapid.IntRange(0, 9).Draw(t, "in vain") != 0) {
		op.Op = "check"
	}
	return op
}

func openFile(t testing.TB, path string, workers int) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, Options{Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestModel compares several stores on one file with the model: every result and every byte of the file.
func TestModel(t *testing.T) {
	dir := t.TempDir()
	files := 0
	rapid.Check(t, func(rt *rapid.T) {
		files++
		path := filepath.Join(dir, strconv.Itoa(files))
		workers := rapid.SampledFrom([]int64{0, 3, 6}).Draw(rt, "workers")
		names := []string{"0", "1", "2"}
		stores := map[string]*Store{}
		m := &fileModel{data: map[string]string{}}
		open := func(name string) {
			s, err := Open(t.Context(), path, Options{Workers: int(workers)})
			if err != nil {
				rt.Fatal(err)
			}
			stores[name] = s
			m.open()
		}
		closeOne := func(name string) bool {
			if err := stores[name].Close(); err != nil {
				rt.Fatal(err)
			}
			return m.close(workers)
		}
		for _, name := range names {
			open(name)
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			op := drawOp(rt, m, names)
			if op.Op == "reopen" {
				closeOne(op.Store)
				open(op.Store)
				continue
			}
			if diff := diffResults(m.do(op), doStoreOp(t.Context(), stores[op.Store], op)); diff != "" {
				rt.Fatalf("%s %q (-want +got):\n%s", op.Op, op.Keys, diff)
			}
			compareFile(rt, path, m.file)
		}
		removed := false
		for _, name := range names {
			removed = closeOne(name)
		}
		if removed {
			m.file = nil
		}
		compareFile(rt, path, m.file)
	})
}

// diffResults treats nil and empty values as equal.
func diffResults(want, got storeResult) string {
	if want.N == got.N && want.Err == got.Err && slices.EqualFunc(want.Values, got.Values, bytes.Equal) {
		return ""
	}
	return cmp.Diff(want, got)
}
