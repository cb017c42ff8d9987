package coord

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// openServer opens a store in dir and closes it when the test ends.
func openServer(t testing.TB, dir string, opts ServerOptions) *Server {
	t.Helper()
	s, err := OpenServer(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// all returns the first batch of a new watch of all keys.
func all(t testing.TB, s Store) Batch {
	t.Helper()
	var first Batch
	enough := errors.New("enough")
	if err := s.Watch(t.Context(), "", func(b Batch) error { first = b; return enough }); !errors.Is(err, enough) {
		t.Fatal(err)
	}
	return first
}

// TestRestart closes a store and opens it again. Everything but the local session's data must be unchanged.
func TestRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by the store")
	s := openServer(t, dir, ServerOptions{})
	way := &pipeNetwork{server: s}
	c := dial(t, DialOptions{Addr: "pipe", Conn: way.dial, TTL: 20 * time.Second})
	gone := dial(t, DialOptions{Addr: "pipe", Conn: way.dial})
	leader := openLocal(t, s)
	put(t, leader, Op{Key: "agent/c", Value: []byte("old")})
	put(t, c, Op{Key: "agent/c", Value: []byte("ready"), Owned: true})
	long := strings.Repeat("long", 20_000)
	put(t, leader, Op{Key: long, Value: []byte("v")})
	put(t, c, Op{Key: "ttl", TTL: time.Hour})
	put(t, c, Op{Key: "deleted", Owned: true})
	put(t, c, Op{Key: "deleted", Delete: true})
	put(t, gone, Op{Key: "agent/gone", Owned: true})
	put(t, c, Op{Key: "leader", Owned: true})
	put(t, leader, Op{Key: "leader", Owned: true}) // takes the key over; the local session ends with the process
	closeStore(t, gone)
	want := all(t, c)
	instance := s.InstanceID()
	checkKilled(t, dir, want)
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	s = openServer(t, dir, ServerOptions{InstanceID: "another"})
	if s.InstanceID() != instance || s.Sessions() != 1 {
		t.Errorf("instance %q became %q; %d sessions", instance, s.InstanceID(), s.Sessions())
	}
	way.set(false, s)
	if err := c.KeepAlive(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left []Event
	for _, e := range want.Events {
		if e.Key != "leader" {
			left = append(left, e)
		}
	}
	wantLeft := Batch{Resync: true, Revision: want.Revision + 1, Events: left}
	if diff := cmp.Diff(wantLeft, all(t, c)); diff != "" {
		t.Errorf("after the restart (-want +got):\n%s", diff)
	}
	closeStore(t, c)
	leader = openLocal(t, s)
	for _, e := range all(t, leader).Events {
		if strings.HasPrefix(e.Key, "agent/") {
			t.Errorf("%s outlives its session", e.Key)
		}
	}
}

// checkKilled opens a copy of the file, as a killed store would leave it. It must hold everything except the leader's
// key, which belonged to the killed process.
func checkKilled(t *testing.T, dir string, want Batch) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(dir, dataFile))
	if err != nil {
		t.Fatal(err)
	}
	found := t.TempDir()
	if err := os.WriteFile(filepath.Join(found, dataFile), file, 0o600); err != nil {
		t.Fatal(err)
	}
	l := openLocal(t, openServer(t, found, ServerOptions{}))
	want.Events = slices.DeleteFunc(slices.Clone(want.Events), func(e Event) bool { return e.Key == "leader" })
	if diff := cmp.Diff(want, all(t, l)); diff != "" {
		t.Errorf("after a kill (-want +got):\n%s", diff)
	}
}

// TestRestartEndsSessions checks that a session whose client does not return ends its TTL after the restart.
func TestRestartEndsSessions(t *testing.T) {
	t.Parallel()
	const short, long = 3 * time.Second, 6 * time.Second // long enough to reach the store's end, and far apart
	dir := t.TempDir()
	s := openServer(t, dir, ServerOptions{})
	way := &pipeNetwork{server: s}
	c, err := Dial(t.Context(), DialOptions{Addr: "pipe", Conn: way.dial, TTL: long})
	if err != nil {
		t.Fatal(err)
	}
	put(t, c, Op{Key: "owned", Owned: true})
	put(t, c, Op{Key: "short", TTL: short})
	way.set(true, nil)
	_ = s.Close()
	if err := c.Close(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("close without the store: %v", err)
	}
	begin := time.Now()
	s = openServer(t, dir, ServerOptions{})
	l := openLocal(t, s)
	seen := watch(t, l, "")
	for _, key := range []string{"owned", "short"} {
		if b := next(t, seen, "a batch"); !b.Resync && (len(b.Events) != 1 || !b.Events[0].Deleted) {
			t.Errorf("%s: %+v", key, b)
		}
	}
	next(t, seen, "the last batch")
	if took := time.Since(begin); took < long || s.Sessions() != 0 {
		t.Errorf("%d sessions left after %v", s.Sessions(), took)
	}
}

// TestBadFolders opens folders and files that cannot be a store's.
func TestBadFolders(t *testing.T) {
	file := func(content []byte) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, dataFile), content, 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	bolt := func(fill func(*bbolt.Tx) error) string {
		dir := t.TempDir()
		db, err := bbolt.Open(filepath.Join(dir, dataFile), 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.Update(fill); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	meta := func(key string, value []byte) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error {
			if err := initialize(tx, "i"); err != nil {
				return err
			}
			return tx.Bucket([]byte(bucketMeta)).Put([]byte(key), value)
		}
	}
	const notOurs = "it is not a coordination store's file, or it is damaged: move it away to start with an empty store"
	for _, tc := range []struct {
		name string
		dir  func() string
		want string
	}{
		{name: "text", dir: func() string { return file([]byte(strings.Repeat("garbage", 9999))) }, want: notOurs},
		{name: "short", dir: func() string { return file([]byte("x")) }, want: notOurs},
		{name: "cut short", want: notOurs, dir: func() string {
			dir := bolt(func(tx *bbolt.Tx) error {
				if err := initialize(tx, "i"); err != nil {
					return err
				}
				for i := range 3000 {
					if err := tx.Bucket([]byte(bucketKeys)).Put(fmt.Append(nil, i), make([]byte, 100)); err != nil {
						return err
					}
				}
				return nil
			})
			if err := os.Truncate(filepath.Join(dir, dataFile), 16<<10); err != nil {
				t.Fatal(err)
			}
			return dir
		}},
		{name: "another program's", want: notOurs, dir: func() string {
			return bolt(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte(bucketMeta)); return err })
		}},
		{
			name: "a newer one's", dir: func() string { return bolt(meta(metaFormat, []byte{2})) },
			want: "a newer elasticrun wrote it in format 2, and this one reads formats up to 1: " +
				"use the newer one, or another folder",
		},
		{name: "no number", dir: func() string { return bolt(meta(metaRevision, []byte{0xff})) }, want: notOurs},
		{name: "a key of an unknown session", want: notOurs, dir: func() string {
			return bolt(func(tx *bbolt.Tx) error {
				if err := meta(metaRevision, []byte{9})(tx); err != nil {
					return err
				}
				return tx.Bucket([]byte(bucketKeys)).Put([]byte("kk"), appendString(append(appendString(nil, "k"), 1, 0), "nobody"))
			})
		}},
		{name: "a file", want: "not a directory", dir: func() string { return filepath.Join(file(nil), dataFile) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := OpenServer(tc.dir(), ServerOptions{})
			if err == nil {
				_ = s.Close()
				t.Fatal("OpenServer succeeded")
			}
			if !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// TestDiskFails closes the file of a running store. The store must acknowledge nothing more, and end.
func TestDiskFails(t *testing.T) {
	s, err := OpenServer(t.TempDir(), ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, DialOptions{Addr: serve(t, s), TTL: 5 * time.Second})
	l := openLocal(t, s)
	put(t, c, Op{Key: "k"})
	s.writer.to.(*disk).db.Close()
	if _, err := c.Commit(t.Context(), nil, []Op{{Key: "l"}}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("commit: %v", err)
	}
	if _, err := l.Commit(t.Context(), nil, []Op{{Key: "l"}}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("commit: %v", err)
	}
	next(t, l.Lost(), "the loss")
	if !strings.Contains(l.Err().Error(), "it cannot write to its disk: database not open") {
		t.Error(l.Err())
	}
	c.lose(errClosed) // Close would wait for the store
	_ = s.Close()
}

// storeEnv makes the test binary a store in that folder. It prints its address and each acknowledged commit.
const storeEnv = "ELASTICRUN_TEST_COORD_STORE"

// acknowledged is a commit of the child process.
type acknowledged struct {
	Addr     string
	Key      string
	Revision Revision
}

// TestKilledStore is the child process of TestKill: a store that commits until it is killed.
func TestKilledStore(t *testing.T) {
	dir := os.Getenv(storeEnv)
	if dir == "" {
		return
	}
	s, err := OpenServer(dir, ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	addr := serve(t, s)
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	report := func(a acknowledged) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(a)
	}
	report(acknowledged{Addr: addr})
	local := openLocal(t, s)
	stores := []Store{local}
	for range 3 {
		stores = append(stores, dial(t, DialOptions{Addr: addr, TTL: time.Hour})) // it outlives all rounds on a slow disk
	}
	var writers sync.WaitGroup
	for n, store := range stores {
		writers.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("%d/%d/%d", os.Getpid(), n, i)
				r, err := store.Commit(t.Context(), nil, []Op{{Key: key + "a", Value: []byte(key)}, {Key: key + "b", Owned: n > 0}})
				if err != nil {
					t.Error(err)
					return
				}
				report(acknowledged{Key: key, Revision: r})
			}
		})
	}
	writers.Wait()
}

// TestKill kills a store during commits, again and again. Acknowledged commits must survive, no commit may be half
// applied, revisions must not repeat, and no other process may open the folder of a running store.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acknowledgedAt := map[string]Revision{}
	var highest Revision
	for round := range 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledStore$")
		cmd.Env = append(os.Environ(), storeEnv+"="+dir)
		stdout := testenv.StartWithOutput(t, cmd)
		lines := bufio.NewScanner(stdout)
		before := highest
		for n := 0; n < 200*(round+1) && lines.Scan(); n++ {
			var a acknowledged
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				t.Fatalf("the store says %s", lines.Bytes())
			}
			if a.Addr != "" {
				_, err := OpenServer(dir, ServerOptions{})
				if err == nil || !strings.HasSuffix(err.Error(), "is in use: another store runs with that folder") {
					t.Errorf("a second store in the folder: %v", err)
				}
				continue
			}
			if a.Revision <= before {
				t.Errorf("revision %d is not above %d", a.Revision, before)
			}
			acknowledgedAt[a.Key] = a.Revision
			highest = max(highest, a.Revision)
		}
		_ = cmd.Process.Kill()
		for lines.Scan() { // acknowledged before the kill
			var a acknowledged
			if json.Unmarshal(lines.Bytes(), &a) == nil {
				acknowledgedAt[a.Key] = a.Revision
				highest = max(highest, a.Revision)
			}
		}
		_ = cmd.Wait()
	}
	s := openServer(t, dir, ServerOptions{})
	l := openLocal(t, s)
	there := map[string]Event{}
	for _, e := range all(t, l).Events {
		there[e.Key] = e
	}
	for key, r := range acknowledgedAt {
		a, b := there[key+"a"], there[key+"b"]
		if a.Create != r || string(a.Value) != key || b.Create != r && !strings.Contains(key, "/0/") {
			t.Errorf("commit %d of %s has left %+v and %+v", r, key, a, b)
		}
	}
	for key := range there {
		if pair, half := strings.CutSuffix(key, "b"); half && there[pair+"a"].Create != there[key].Create {
			t.Errorf("of the commit of %s only half is there", pair)
		}
	}
	if r := all(t, l).Revision; r < highest || len(acknowledgedAt) < 100 || s.Sessions() != 12 {
		t.Errorf("revision %d after %d, %d commits, %d sessions", r, highest, len(acknowledgedAt), s.Sessions())
	}
}

// TestClientSurvivesRestart checks that a client survives a restart of its store.
func TestClientSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	s := openServer(t, dir, ServerOptions{})
	way := &pipeNetwork{server: s}
	c := dial(t, DialOptions{Addr: "pipe", Conn: way.dial, TTL: 20 * time.Second})
	seen := watch(t, c, "")
	next(t, seen, "the first batch")
	put(t, c, Op{Key: "k", Owned: true})
	next(t, seen, "a batch")
	_ = s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.KeepAlive(ctx); !errors.Is(err, ErrUnavailable) {
		t.Errorf("keep-alive without the store: %v", err)
	}
	way.set(false, openServer(t, dir, ServerOptions{}))
	wantBatch(t, seen, Batch{Resync: true, Revision: 1, Events: []Event{{Key: "k", Create: 1}}})
	closeStore(t, c) // before its store closes
}

// BenchmarkDisk measures durable commits by many clients at once.
func BenchmarkDisk(b *testing.B) {
	s, err := OpenServer(b.TempDir(), ServerOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	l := openLocal(b, s)
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := l.Commit(b.Context(), nil, []Op{{Key: fmt.Sprint("k", i%1000), Value: make([]byte, 500)}}); err != nil {
				b.Error(err)
			}
		}
	})
}
