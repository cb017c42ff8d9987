package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// linearOp is an operation on one key in a history.
type linearOp struct {
	kind  string // add, set, append, delete, swap: compare_set
	key   string
	value string // what is set, appended or desired
	old   string // swap: what is expected
	delta int64
}

// linearResult is what the store answered.
type linearResult struct {
	value string
	n     int64
	ok    bool
}

// linearValue is a key's state.
type linearValue struct {
	value string
	there bool
}

// fileLinearModel is one key of a store, for porcupine. Whatever has been set here is a number or empty.
var linearModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(linearOp).key
			byKey[key] = append(byKey[key], op)
		}
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return linearValue{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(linearValue), input.(linearOp), output.(linearResult)
		switch in.kind {
		case "set":
			return true, linearValue{in.value, true}
		case "append":
			return true, linearValue{s.value + in.value, true}
		case "delete":
			return out.ok == s.there, linearValue{}
		case "check":
			return out.ok == s.there, s
		case "get":
			return s.there && out.value == s.value, s
		case "add":
			n, _ := strconv.ParseInt(s.value, 10, 64) // 0 where empty
			return out.n == n+in.delta, linearValue{strconv.FormatInt(n+in.delta, 10), true}
		}
		switch { // swap
		case !s.there && in.old != "":
			return out.value == in.old, s
		case s.value == in.old:
			return out.value == in.value, linearValue{in.value, true}
		}
		return out.value == s.value, s
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// TestStoreLinearizable lets goroutines of several stores on one file do what they like with few keys.
func TestStoreLinearizable(t *testing.T) {
	for range testenv.Repeat(t, 10, 1_000) {
		path := filepath.Join(t.TempDir(), "store")
		var mu sync.Mutex
		var history []porcupine.Operation
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 3 {
			s := openFile(t, path, 0)
			for j := range 2 {
				wg.Go(func() {
					for range 40 {
						op := linearOp{
							kind:  []string{"set", "append", "delete", "check", "get", "add", "swap", "swap"}[rand.IntN(8)],
							key:   strconv.Itoa(rand.IntN(3)),
							value: strconv.Itoa(rand.IntN(3)),
							old:   []string{"", "0", "1", "2"}[rand.IntN(4)],
							delta: 1,
						}
						called := time.Since(start)
						result, known := doLinear(t, s, op)
						returned := time.Since(start)
						if !known {
							continue // a Get that was given up: it changes nothing
						}
						mu.Lock()
						history = append(history, porcupine.Operation{
							ClientId: 2*i + j, Input: op, Output: result, Call: called.Nanoseconds(), Return: returned.Nanoseconds(),
						})
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		switch result := porcupine.CheckOperationsTimeout(linearModel, history, 30*time.Second); result {
		case porcupine.Unknown:
			t.Log("too long to check")
		case porcupine.Illegal:
			t.Fatalf("history of %d operations is not linearizable: %+v", len(history), history)
		}
	}
}

func doLinear(t *testing.T, s *Store, op linearOp) (r linearResult, known bool) {
	t.Helper()
	ctx := t.Context()
	var err error
	var value []byte
	switch op.kind {
	case "set":
		err = s.Set(ctx, op.key, []byte(op.value))
	case "append":
		err = s.Append(ctx, op.key, []byte(op.value))
	case "delete":
		r.ok, err = s.Delete(ctx, op.key)
	case "check":
		r.ok, err = s.Check(ctx, op.key)
	case "get":
		ctx, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		if value, err = s.Get(ctx, op.key); errors.Is(err, kvstore.ErrTimeout) {
			return r, false
		}
	case "add":
		r.n, err = s.Add(ctx, op.key, op.delta)
	case "swap":
		value, err = s.CompareSet(ctx, op.key, []byte(op.old), []byte(op.value))
	}
	if err != nil {
		t.Errorf("%+v: %v", op, err)
	}
	r.value = string(value)
	return r, true
}

// fileWriter in the environment makes TestFileWriterProcess write to the file that it names, and fileWriterSize is
// the size of its values.
const (
	fileWriter     = "ELASTICRUN_TEST_FILE_WRITER"
	fileWriterSize = "ELASTICRUN_TEST_FILE_WRITER_SIZE"
)

// TestFileWriterProcess is the program of the processes that are killed.
func TestFileWriterProcess(t *testing.T) {
	path := os.Getenv(fileWriter)
	if path == "" {
		t.Skip("runs only as a process of TestStoreOfKilledWriters")
	}
	size, err := strconv.Atoi(os.Getenv(fileWriterSize))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		if err := s.Set(t.Context(), "k"+strconv.Itoa(i%50), bytes.Repeat([]byte{byte(i)}, size)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Add(t.Context(), "n", 1); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStoreOfKilledWriters kills Go's writers at any moment. A survivor reads on, or is told of the torn record; it
// never sees a part of a value.
func TestStoreOfKilledWriters(t *testing.T) {
	for _, size := range []int{10, 300_000} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			torn := 0
			times := testenv.Repeat(t, 8, 300)
			for range times {
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFileWriterProcess$")
				path := filepath.Join(t.TempDir(), "store")
				cmd.Env = append(os.Environ(), fileWriter+"="+path, fileWriterSize+"="+strconv.Itoa(size))
				if survive(t, path, cmd, func() error { return cmd.Start() }, size) {
					torn++
				}
			}
			t.Logf("%d of %d files had a torn record at their end", torn, times)
			if size <= 4096 && torn > 0 {
				t.Error("a record within a page was torn by a mere signal")
			}
		})
	}
}

// TestStoreOfKilledTorch is the same with torch's writers, which write each record in four pieces.
func TestStoreOfKilledTorch(t *testing.T) {
	torn := 0
	times := testenv.Repeat(t, 1, 100)
	for range times {
		path := filepath.Join(t.TempDir(), "store")
		torch := startTorchStores(t, "2.14")
		torch.must(t, storeOp{Store: "s", Op: "open_file", Path: path, N: -1})
		start := func() error {
			return torch.send(storeOp{Store: "s", Op: "write_until_killed", Values: [][]byte{bytes.Repeat([]byte("x"), 10)}})
		}
		if survive(t, path, torch.cmd, start, 10) {
			torn++
		}
	}
	t.Logf("%d of %d files had a torn record at their end", torn, times)
}

// survive starts a writer, kills it once it is writing, and tells whether the file is torn. A survivor has it open
// all the time, another opens it then.
func survive(t *testing.T, path string, cmd *exec.Cmd, start func() error, size int) (torn bool) {
	t.Helper()
	s := openFile(t, path, 0)
	if err := start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	waitErr := s.Wait(ctx, "k1", "k"+strconv.Itoa(rand.IntN(50)))
	if err := errors.Join(waitErr, cmd.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()

	whole, _ := os.ReadFile(path)
	data, offset := parseFile(whole)
	torn = offset < len(whole)
	_, openErr := Open(ctx, path, Options{})
	_, err := s.Check(ctx, "k1")
	for what, err := range map[string]error{"survivor": err, "newcomer": openErr} {
		if torn && !errors.Is(err, kvstore.ErrProtocol) || !torn && err != nil {
			t.Errorf("%s: torn %v, error %v", what, torn, err)
		}
	}
	if torn {
		return true
	}
	for i := range 50 {
		key := "k" + strconv.Itoa(i)
		value, ok := data["/"+key]
		if !ok {
			continue
		}
		got, err := s.Get(ctx, key)
		if err != nil || string(got) != value || len(got) != size || bytes.Count(got, got[:1]) != size {
			t.Errorf("%s: %d bytes, %v", key, len(got), err)
		}
	}
	return false
}
