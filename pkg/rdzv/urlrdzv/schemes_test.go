package urlrdzv

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// environ returns a lookup of the variables in a map.
func environ(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

// rendezvous performs the rendezvous of a URL, as a process with these variables.
func rendezvous(ctx context.Context, url string, vars map[string]string) (*Result, error) {
	r, err := NewSchemes(Options{Lookup: environ(vars)}).Rendezvous(url)
	if err != nil {
		return nil, err
	}
	return r.Next(ctx)
}

// A mistake in the URL or in the environment gives an error of one line that names it, before any connection or file.
func TestBadInput(t *testing.T) {
	folder := t.TempDir()
	whole := map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
	without := func(name string) map[string]string {
		vars := maps.Clone(whole)
		delete(vars, name)
		return vars
	}
	with := func(name, value string) map[string]string {
		vars := maps.Clone(whole)
		vars[name] = value
		return vars
	}
	const unset = " expected, but not set: elasticrun and torchrun set it"
	for _, tc := range []struct {
		url  string
		vars map[string]string
		want string
	}{
		{url: "", want: `rendezvous URL "": no scheme; write one such as env://`},
		{url: "tcp:127.0.0.1", want: `rendezvous URL "tcp:127.0.0.1": no scheme; write one such as env://`},
		{url: "://", want: `rendezvous URL "://": no rendezvous handler for ://; known: env, file, tcp`},
		{url: "etcd://h:1", want: `rendezvous URL "etcd://h:1": no rendezvous handler for etcd://; known: env, file, tcp`},

		{url: "file://?rank=0&world_size=1", want: `file:// rendezvous: path missing; write file:///PATH`},
		{
			url:  "file://tmp/f?rank=0&world_size=1",
			want: `file:// rendezvous: "tmp" is a host, not a folder; write three slashes, file:///PATH`,
		},
		{url: "file:///f?world_size=1", want: `file:// rendezvous: rank parameter missing: add rank=NUMBER to the URL's query`},
		{url: "file:///f?rank=0", want: `file:// rendezvous: world size parameter missing: add world_size=NUMBER to the URL's query`},
		{url: "file:///f?rank=x&world_size=1", want: `file:// rendezvous: rank="x": must be a whole number`},
		{url: "file:///f?rank", want: `file:// rendezvous: query parameter "rank" has no value; write rank=VALUE`},

		{
			url:  "tcp://h?rank=0&world_size=1",
			want: `tcp:// rendezvous: port number missing in "h"; write tcp://HOST:PORT, and an IPv6 address in brackets`,
		},
		{
			url:  "tcp://h:?rank=0&world_size=1",
			want: `tcp:// rendezvous: port number missing in "h:"; write tcp://HOST:PORT, and an IPv6 address in brackets`,
		},
		{
			url:  "tcp://::1:5?rank=0&world_size=1",
			want: `tcp:// rendezvous: port number missing in "::1:5"; write tcp://HOST:PORT, and an IPv6 address in brackets`,
		},
		{
			url:  "tcp://:5?rank=0&world_size=1",
			want: `tcp:// rendezvous: host missing in ":5"; write tcp://HOST:PORT with rank 0's address`,
		},
		{
			url:  "tcp://me@h:5?rank=0&world_size=1",
			want: `tcp:// rendezvous: "me@h" is no host; write tcp://HOST:PORT with rank 0's address`,
		},
		{
			url:  "tcp://h:x?rank=0&world_size=1",
			want: `tcp:// rendezvous: port="x": must be a whole number from 1 to 65535`,
		},
		{
			url:  "tcp://h:0?rank=0&world_size=1",
			want: `tcp:// rendezvous: port="0": must be a whole number from 1 to 65535`,
		},
		{
			url:  "tcp://h:65536?rank=0&world_size=1",
			want: `tcp:// rendezvous: port="65536": must be a whole number from 1 to 65535`,
		},
		{url: "tcp://h:5", want: `tcp:// rendezvous: rank parameter missing: add rank=NUMBER to the URL's query`},
		{url: "tcp://h:5?rank=1", want: `tcp:// rendezvous: world size parameter missing: add world_size=NUMBER to the URL's query`},
		{url: "tcp://h:5?rank=&world_size=1", want: `tcp:// rendezvous: rank="": must be a whole number`},
		{url: "tcp://h:5?rank=0&world_size=1.5", want: `tcp:// rendezvous: world_size="1.5": must be a whole number`},
		{
			url:  "tcp://h:5?rank=-1&world_size=2",
			want: `tcp:// rendezvous: rank="-1": must be at least 0 and below the world size, 2`,
		},
		{
			url:  "tcp://h:5?rank=2&world_size=2",
			want: `tcp:// rendezvous: rank="2": must be at least 0 and below the world size, 2`,
		},
		{url: "tcp://h:5?rank=0&world_size=0", want: `tcp:// rendezvous: world_size="0": must be at least 1`},
		{url: "tcp://h:5?rank=0&world_size=-1", want: `tcp:// rendezvous: world_size="-1": must be at least 1`},
		{
			url:  "tcp://h:5?rank=0&world_size=1&generation=3",
			want: `tcp:// rendezvous: generation="3": must be 1 or 2, the major version of the torch that hosts the store`,
		},

		{url: "env://h:5", vars: whole, want: `env:// rendezvous: "env://h:5" names an address, which MASTER_ADDR and MASTER_PORT are for; write env://`},
		{url: "env://", vars: without("RANK"), want: `env:// rendezvous: environment variable RANK` + unset},
		{url: "env://", vars: with("RANK", ""), want: `env:// rendezvous: environment variable RANK` + unset},
		{
			url: "env://", vars: without("WORLD_SIZE"),
			want: `env:// rendezvous: environment variable WORLD_SIZE` + unset,
		},
		{
			url: "env://", vars: without("MASTER_ADDR"),
			want: `env:// rendezvous: environment variable MASTER_ADDR` + unset,
		},
		{
			url: "env://", vars: without("MASTER_PORT"),
			want: `env:// rendezvous: environment variable MASTER_PORT` + unset,
		},
		{url: "env://", vars: with("RANK", "one"), want: `env:// rendezvous: RANK="one": must be a whole number`},
		{
			url: "env://", vars: with("RANK", "2"),
			want: `env:// rendezvous: RANK="2": must be at least 0 and below the world size, 2`,
		},
		{url: "env://", vars: with("WORLD_SIZE", "0"), want: `env:// rendezvous: WORLD_SIZE="0": must be at least 1`},
		{
			url: "env://", vars: with("MASTER_PORT", "99999"),
			want: `env:// rendezvous: MASTER_PORT="99999": must be a whole number from 1 to 65535`,
		},
		{
			url: "env://", vars: with("MASTER_ADDR", "a b"),
			want: `env:// rendezvous: MASTER_ADDR="a b": must be the name or address of rank 0's host`,
		},
		{
			url: "env://", vars: with("MASTER_ADDR", "tcp://h"),
			want: `env:// rendezvous: MASTER_ADDR="tcp://h": must be the name or address of rank 0's host`,
		},
		// The query takes precedence over the environment.
		{
			url: "env://?rank=7", vars: whole,
			want: `env:// rendezvous: rank="7": must be at least 0 and below the world size, 2`,
		},
		{url: "env://?world_size=no", vars: whole, want: `env:// rendezvous: world_size="no": must be a whole number`},
		{url: "env://?rank=1&world_size=2", want: `env:// rendezvous: environment variable MASTER_ADDR` + unset},
	} {
		_, err := rendezvous(t.Context(), tc.url, tc.vars)
		if err == nil || err.Error() != tc.want || errors.Is(err, rdzv.ErrRendezvous) {
			t.Errorf("%q:\n got %v\nwant %s", tc.url, err, tc.want)
		}
	}
	nowhere := filepath.Join(folder, "none", "file")
	_, err := rendezvous(t.Context(), "file://"+nowhere+"?rank=0&world_size=1", nil)
	if !errors.Is(err, os.ErrNotExist) || !errors.Is(err, rdzv.ErrConnection) ||
		!strings.HasPrefix(err.Error(), "file:// rendezvous: ") || !strings.Contains(err.Error(), nowhere) {
		t.Errorf("a path whose folder is missing: %v", err)
	}
	if left, _ := os.ReadDir(folder); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// Schemes calls a registered handler with the URL as written, at each Next. The handler decides when it is over, as a
// generator in torch does.
func TestSchemes(t *testing.T) {
	s := NewSchemes(Options{})
	store := kvstore.NewHashStore()
	var got []string
	handler := func(_ context.Context, url string) (*Result, error) {
		got = append(got, url)
		if len(got) > 2 {
			return nil, rdzv.ErrClosed
		}
		return &Result{Store: store, Rank: 1, WorldSize: 2 + len(got)}, nil
	}
	for scheme, want := range map[string]string{
		"tcp": `register rendezvous handler for tcp://: already registered`,
		"ENV": `register rendezvous handler for env://: already registered`,
		"":    `register rendezvous handler for ://: the scheme is empty or the handler is nil`,
	} {
		if err := s.Register(scheme, handler); err == nil || err.Error() != want {
			t.Errorf("Register(%q) = %v, want %s", scheme, err, want)
		}
	}
	if err := s.Register("nil", nil); err == nil {
		t.Error("a nil handler was registered")
	}
	if err := s.Register("Own", handler); err != nil {
		t.Fatal(err)
	}
	r, err := s.Rendezvous("oWn://a/b?c=%20#d")
	if err != nil || got != nil {
		t.Fatalf("Rendezvous: %v; the handler was called with %q", err, got)
	}
	for _, worldSize := range []int{3, 4} {
		result, err := r.Next(t.Context())
		if err != nil || result.Store != kvstore.Store(store) || result.Rank != 1 || result.WorldSize != worldSize ||
			result.Close() != nil {
			t.Errorf("Next = %+v, %v, want world size %d", result, err, worldSize)
		}
	}
	_, err = r.Next(t.Context())
	if !errors.Is(err, rdzv.ErrClosed) || err.Error() != "own:// rendezvous: rendezvous is closed" {
		t.Errorf("Next at the handler's end: %v", err)
	}
	const url = "oWn://a/b?c=%20#d"
	if diff := cmp.Diff([]string{url, url, url}, got); diff != "" {
		t.Errorf("the handler was called with (-want +got):\n%s", diff)
	}
}

// The schemes of torch do not run again, not even after a failure: the store may have counted this worker.
func TestNextOnceEvenAfterFailure(t *testing.T) {
	for scheme, url := range map[string]string{"tcp": "tcp://127.0.0.1:1", "file": "file://", "env": "env://h"} {
		r, err := NewSchemes(Options{Lookup: environ(nil)}).Rendezvous(url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(t.Context()); err == nil || errors.Is(err, rdzv.ErrClosed) {
			t.Errorf("%s: the first Next: %v", url, err)
		}
		want := "unable to perform re-rendezvous using " + scheme + ":// method: rendezvous is closed"
		if _, err := r.Next(t.Context()); !errors.Is(err, rdzv.ErrClosed) || err.Error() != want {
			t.Errorf("%s: the second Next: %v", url, err)
		}
	}
}

// The path is not unescaped, as in torch.
func TestFileURL(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "a%20b c=d;e")
	var stores []*Result
	for _, url := range []string{
		"file://" + path + "?rank=0&world_size=2#fragment",
		"FILE://localhost" + path + "?&world_size=2&other=x&rank=1",
	} {
		r, err := rendezvous(t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, r)
	}
	if stores[0].Rank != 0 || stores[1].Rank != 1 || stores[1].WorldSize != 2 {
		t.Errorf("results %+v, %+v", stores[0], stores[1])
	}
	if err := stores[0].Store.Set(t.Context(), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if got, err := stores[1].Store.Get(t.Context(), "k"); err != nil || string(got) != "v" {
		t.Errorf("rank 1 reads %q, %v", got, err)
	}
	left, _ := os.ReadDir(folder)
	if !slices.ContainsFunc(left, func(e os.DirEntry) bool { return e.Name() == filepath.Base(path) }) {
		t.Errorf("the folder holds %v", left)
	}
	for _, r := range stores {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(folder); len(left) > 0 {
		t.Errorf("the last of the job's stores left %v", left)
	}
}

func TestFileURLOfNoStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("this is not a store's file, but a long text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := rendezvous(t.Context(), "file://"+path+"?rank=0&world_size=1", nil); !errors.Is(err, rdzv.ErrState) {
		t.Errorf("a file that is no store: %v", err)
	}
}
