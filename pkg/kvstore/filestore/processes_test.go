package filestore

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// The environment variable fileWriter makes TestWriterProcess write to the file that it names, with values of
// fileWriterSize bytes.
const (
	fileWriter     = "ELASTICRUN_TEST_FILE_WRITER"
	fileWriterSize = "ELASTICRUN_TEST_FILE_WRITER_SIZE"
)

// TestWriterProcess is the program of the processes that TestKilledWriters kills.
func TestWriterProcess(t *testing.T) {
	path := os.Getenv(fileWriter)
	if path == "" {
		t.Skip("runs only as a process of TestKilledWriters")
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

// TestKilledWriters kills Go writers at random moments. Another store on the file then reads on or reports the torn
// record. It never sees part of a value.
func TestKilledWriters(t *testing.T) {
	for _, size := range []int{10, 300_000} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			torn := 0
			times := testenv.Repeat(t, 5, 300)
			for range times {
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWriterProcess$")
				path := filepath.Join(t.TempDir(), "store")
				cmd.Env = append(os.Environ(), fileWriter+"="+path, fileWriterSize+"="+strconv.Itoa(size))
				if killWriter(t, path, cmd, func() error { return cmd.Start() }, size) {
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

// testKilledTorchWriters does the same as TestKilledWriters with torch, which writes each record in four pieces. It
// kills the given process first.
func testKilledTorchWriters(t *testing.T, torch *torchStores) {
	t.Helper()
	torn := 0
	times := testenv.Repeat(t, 1, 100)
	for i := range times {
		path := filepath.Join(t.TempDir(), "store")
		if i > 0 {
			torch = startTorchStores(t, torch.version)
		}
		torch.must(t, storeOp{Store: "s", Op: "open_file", Path: path, N: -1})
		start := func() error {
			return torch.send(storeOp{Store: "s", Op: "write_until_killed", Values: [][]byte{bytes.Repeat([]byte("x"), 10)}})
		}
		if killWriter(t, path, torch.cmd, start, 10) {
			torn++
		}
	}
	t.Logf("%d of %d files had a torn record at their end", torn, times)
}

// killWriter starts a writer, kills it while it writes, and reports whether the file is torn. One store has the file
// open all the time; another opens it afterwards.
func killWriter(t *testing.T, path string, cmd *exec.Cmd, start func() error, size int) (torn bool) {
	t.Helper()
	s := openFile(t, path, 0)
	if err := start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
