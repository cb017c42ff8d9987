package filestore

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

// torchStores is a torch process that runs testdata/py/stores.py.
type torchStores struct {
	version string
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *bufio.Scanner
}

func startTorchStores(t testing.TB, version string) *torchStores {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testenv.Torch(t, version), "testdata/py/stores.py")
	stderr := &strings.Builder{}
	cmd.Stderr = stderr
	in, out := testenv.StartWithPipes(t, cmd)
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // a test may have killed it
		if t.Failed() {
			t.Logf("torch's stderr: %s", stderr)
		}
	})
	answers := bufio.NewScanner(out)
	answers.Buffer(nil, 16<<20)
	return &torchStores{version: version, cmd: cmd, in: in, answers: answers}
}

// send sends a request; receive must follow.
func (p *torchStores) send(op storeOp) error { return json.NewEncoder(p.in).Encode(op) }

func (p *torchStores) receive() (r storeResult, err error) {
	if !p.answers.Scan() {
		return r, fmt.Errorf("torch gave no answer: %w", p.answers.Err())
	}
	err = json.Unmarshal(p.answers.Bytes(), &r)
	switch {
	case strings.Contains(r.Err, "stoll"):
		r = storeResult{Err: "number"}
	case strings.Contains(r.Err, "imeout"):
		r = storeResult{Err: "timeout"}
	}
	return r, err
}

func (p *torchStores) do(op storeOp) (r storeResult, err error) {
	if err := p.send(op); err != nil {
		return r, err
	}
	return p.receive()
}

// must performs an operation that has to succeed.
func (p *torchStores) must(t fataler, op storeOp) storeResult {
	t.Helper()
	r, err := p.do(op)
	if err != nil || r.Err != "" {
		t.Fatalf("torch: %s %q: %v %s", op.Op, op.Keys, err, r.Err)
	}
	return r
}

func TestStoresWithTorch(t *testing.T) {
	for _, version := range []string{"2.14", testenv.Official} {
		if version == testenv.Official && !testenv.Whole(t) {
			continue
		}
		t.Run(version, func(t *testing.T) {
			torch := startTorchStores(t, version)
			t.Run("in turns", func(t *testing.T) { testFileInTurns(t, torch) })
			t.Run("adds at once", func(t *testing.T) { testFileAddsAtOnce(t, torch) })
			t.Run("prefix in a file", func(t *testing.T) { testFilePrefix(t, torch) })
			t.Run("prefix on a server", func(t *testing.T) { testPrefixOnServer(t, torch) })
			t.Run("killed writers", func(t *testing.T) { testKilledTorchWriters(t, torch) })
		})
	}
}

// testFileInTurns lets Go and torch use one file in turns, and compares every result and every byte of the file with
// the model.
func testFileInTurns(t *testing.T, torch *torchStores) {
	t.Helper()
	dir := t.TempDir()
	want, files := testenv.Repeat(t, 200, 20_000), 0
	sequence := func(rt *rapid.T) {
		files++
		path := filepath.Join(dir, strconv.Itoa(files))
		pair := &goAndTorch{
			t: rt, torch: torch, path: path,
			workers: rapid.SampledFrom([]int64{0, 4, 6}).Draw(rt, "workers"),
			model:   &fileModel{data: map[string]string{}},
			stores:  map[string]*Store{},
		}
		names := []string{"torch1", "go1", "torch2", "go2"}
		defer pair.abandon() // stores that a failure left open
		for _, name := range names {
			pair.open(t, name)
		}
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			op := drawOp(rt, pair.model, names)
			if op.Op == "reopen" {
				pair.close(op.Store)
				pair.open(t, op.Store)
				continue
			}
			pair.step(t, op)
		}
		for _, name := range names {
			pair.step(t, storeOp{Store: name, Op: "list_keys"})
			for _, key := range slices.Sorted(maps.Keys(pair.model.data)) {
				if user, ok := strings.CutPrefix(key, "/"); ok {
					pair.step(t, storeOp{Store: name, Op: "get", Keys: []string{user}})
				}
			}
		}
		compareFile(rt, path, pair.model.file)
		removed := false
		for _, name := range rapid.Permutation(names).Draw(rt, "order of closing") {
			removed = pair.close(name)
		}
		if removed {
			pair.model.file = nil
		}
		compareFile(rt, path, pair.model.file)
	}
	for files < want {
		rapid.Check(t, sequence) // 100 sequences by default
		if t.Failed() {
			return
		}
	}
	t.Logf("%d sequences", files)
}

// goAndTorch holds the stores of Go and torch on one file, and the model of it.
type goAndTorch struct {
	t       *rapid.T
	torch   *torchStores
	path    string
	workers int64
	model   *fileModel
	stores  map[string]*Store // nil: torch's
}

func (p *goAndTorch) open(t *testing.T, name string) {
	t.Helper()
	p.model.open()
	if strings.HasPrefix(name, "torch") {
		n := p.workers
		if n == 0 {
			n = -1 // torch's value for a number that is not fixed
		}
		p.torch.must(p.t, storeOp{Store: name, Op: "open_file", Path: p.path, N: n})
		p.stores[name] = nil
		return
	}
	s, err := Open(t.Context(), p.path, Options{Workers: int(p.workers)})
	if err != nil {
		p.t.Fatal(err)
	}
	p.stores[name] = s
}

// close reports whether the file should be gone.
func (p *goAndTorch) close(name string) bool {
	s := p.stores[name]
	delete(p.stores, name)
	if s == nil {
		p.torch.must(p.t, storeOp{Store: name, Op: "close"})
	} else if err := s.Close(); err != nil {
		p.t.Fatal(err)
	}
	return p.model.close(p.workers)
}

func (p *goAndTorch) abandon() {
	for name, s := range p.stores {
		if s == nil {
			_, _ = p.torch.do(storeOp{Store: name, Op: "close"})
		} else {
			_ = s.Close()
		}
	}
}

func (p *goAndTorch) step(t *testing.T, op storeOp) {
	t.Helper()
	var want, got storeResult
	if !torchSkipsAppend(p, op) {
		want = p.model.do(op)
	}
	if s := p.stores[op.Store]; s != nil {
		got = doStoreOp(t.Context(), s, op)
	} else {
		var err error
		if got, err = p.torch.do(op); err != nil {
			p.t.Fatal(err)
		}
		switch op.Op {
		case "delete":
			want.N = 1 // torch says so for a missing key too
		case "list_keys":
			want.Values = nil
			for key := range p.model.data {
				want.Values = append(want.Values, []byte(key[1:])) // torch also cuts the first letter off the store's own keys
			}
			slices.SortFunc(want.Values, slices.Compare)
			slices.SortFunc(got.Values, slices.Compare)
		}
	}
	if diff := diffResults(want, got); diff != "" {
		p.t.Fatalf("%s: %s %q %.80q (-want +got):\n%s", op.Store, op.Op, op.Keys, op.Values, diff)
	}
	compareFile(p.t, p.path, p.model.file)
}

// torchSkipsAppend reports whether torch's append does nothing, because the key holds exactly the value.
func torchSkipsAppend(p *goAndTorch, op storeOp) bool {
	return p.stores[op.Store] == nil && op.Op == "append" && len(op.Values[0]) > 0 &&
		p.model.data["/"+op.Keys[0]] == string(op.Values[0])
}

// testFileAddsAtOnce lets Go and torch add concurrently.
func testFileAddsAtOnce(t *testing.T, torch *torchStores) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store")
	times := testenv.Repeat(t, 2_000, 50_000)
	torch.must(t, storeOp{Store: "sum", Op: "open_file", Path: path, N: 3})
	a, b := openFile(t, path, 3), openFile(t, path, 3)
	if err := torch.send(storeOp{Store: "sum", Op: "add_many", Keys: []string{"sum"}, N: int64(times)}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	for _, s := range []*Store{a, b} {
		go func() {
			for range times {
				if _, err := s.Add(t.Context(), "sum", 1); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if r, err := torch.receive(); err != nil || r.Err != "" {
		t.Fatal(err, r.Err)
	}
	want := int64(3 * times)
	if got := torch.must(t, storeOp{Store: "sum", Op: "add", Keys: []string{"sum"}}); got.N != want {
		t.Errorf("torch's sum = %d, want %d", got.N, want)
	}
	if got, err := a.Add(t.Context(), "sum", 0); got != want || err != nil {
		t.Errorf("Go's sum = %d, %v; want %d", got, err, want)
	}
	torch.must(t, storeOp{Store: "sum", Op: "close"})
}

// testFilePrefix compares the files that the PrefixStores of Go and torch write.
func testFilePrefix(t *testing.T, torch *torchStores) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "torch")
	torch.must(t, storeOp{Store: "file", Op: "open_file", Path: path, N: -1})
	prefixed(t, torch, "file")
	torch.must(t, storeOp{Store: "file", Op: "close"})

	goPath := filepath.Join(dir, "go")
	s := openFile(t, goPath, 0)
	prefixedGo(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want := rawRecords("refcount/", "1", "/inner/outer/k", "v", "/inner/outer/", "1", "//x", "y",
		"cleanup/", "1", "refcount/", "0")
	compareFile(t, path, want)
	compareFile(t, goPath, want)
}

// prefixed writes through torch's prefix stores on the given store.
func prefixed(t *testing.T, torch *torchStores, store string) {
	t.Helper()
	for _, op := range []storeOp{
		{Store: "inner", Op: "prefix", Path: store, Keys: []string{"inner"}},
		{Store: "outer", Op: "prefix", Path: "inner", Keys: []string{"outer"}},
		{Store: "none", Op: "prefix", Path: store, Keys: []string{""}},
		{Store: "outer", Op: "set", Keys: []string{"k"}, Values: [][]byte{[]byte("v")}},
		{Store: "outer", Op: "add", Keys: []string{""}, N: 1},
		{Store: "none", Op: "set", Keys: []string{"x"}, Values: [][]byte{[]byte("y")}},
	} {
		torch.must(t, op)
	}
	all := torch.must(t, storeOp{Store: store, Op: "num_keys"})
	if part := torch.must(t, storeOp{Store: "outer", Op: "num_keys"}); part.N != all.N {
		t.Errorf("torch counts %d keys through the prefixes, %d without", part.N, all.N)
	}
	for _, name := range []string{"outer", "inner", "none"} {
		torch.must(t, storeOp{Store: name, Op: "close"})
	}
}

// prefixedGo does the same as prefixed in Go.
func prefixedGo(t *testing.T, store kvstore.Store) {
	t.Helper()
	ctx := t.Context()
	outer := kvstore.NewPrefixStore("outer", kvstore.NewPrefixStore("inner", store))
	err := outer.Set(ctx, "k", []byte("v"))
	_, addErr := outer.Add(ctx, "", 1)
	noneErr := kvstore.NewPrefixStore("", store).Set(ctx, "x", []byte("y"))
	if err := errors.Join(err, addErr, noneErr); err != nil {
		t.Fatal(err)
	}
}

// testPrefixOnServer checks the keys that torch's PrefixStore creates on a tcpstore.Server. TestStoresWithTorch runs
// it.
func testPrefixOnServer(t *testing.T, torch *torchStores) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := tcpstore.NewServer(tcpstore.ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() { server.Close(); <-served }()
	port := int64(l.Addr().(*net.TCPAddr).Port)
	torch.must(t, storeOp{Store: "tcp", Op: "open_tcp", N: port})
	prefixed(t, torch, "tcp")
	for key, want := range map[string]string{"inner/outer/k": "v", "inner/outer/": "1", "/x": "y"} {
		got := torch.must(t, storeOp{Store: "tcp", Op: "get", Keys: []string{key}})
		if len(got.Values) != 1 || string(got.Values[0]) != want {
			t.Errorf("%q is %q, want %q", key, got.Values, want)
		}
	}
	torch.must(t, storeOp{Store: "tcp", Op: "close"})
}
