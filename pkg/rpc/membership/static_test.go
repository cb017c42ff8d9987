package membership

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

// member is a valid record.
func member(rank, worldSize int) Record {
	return Record{
		Version: Version, Name: fmt.Sprint("w", rank), ID: rank, WorldSize: worldSize, Incarnation: 1000 + uint64(rank),
		Host: fmt.Sprint("host", rank), Address: fmt.Sprintf("10.0.0.%d:%d", 1+rank%200, 4000+rank), DeviceCount: 2,
	}
}

func members(worldSize int) []Record {
	records := make([]Record, worldSize)
	for rank := range records {
		records[rank] = member(rank, worldSize)
	}
	return records
}

// formResult is the result of a FormStatic.
type formResult struct {
	members []Record
	err     error
}

// formAll calls FormStatic for all records at the same time, each with its own store, and returns the results in order.
func formAll(
	ctx context.Context, stores func(i int) kvstore.Store, records []Record, warm func(context.Context, []Record) error,
) []formResult {
	results := make([]formResult, len(records))
	var wg sync.WaitGroup
	for i, r := range records {
		wg.Go(func() { results[i].members, results[i].err = FormStatic(ctx, stores(i), r, warm) })
	}
	wg.Wait()
	return results
}

// checkFormed checks that all calls succeeded with the same members.
func checkFormed(t *testing.T, results []formResult, want []Record) {
	t.Helper()
	for i, end := range results {
		if end.err != nil {
			t.Errorf("member %d: %v", i, end.err)
		} else if diff := cmp.Diff(want, end.members); diff != "" {
			t.Errorf("member %d has other members (-want +got):\n%s", i, diff)
		}
	}
}

func sharedStore(s kvstore.Store) func(int) kvstore.Store {
	return func(int) kvstore.Store { return s }
}

func TestFormStatic(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8, 64} {
		synctest.Test(t, func(t *testing.T) {
			records := members(n)
			records[0].DeviceMaps = map[string]device.Map{records[n-1].Name: {device.CUDA(1): device.CUDA(0)}}
			var warmed sync.Map
			store := sharedStore(kvstore.NewHashStore())
			results := formAll(t.Context(), store, records, func(_ context.Context, members []Record) error {
				if len(members) != n {
					t.Errorf("warm got %d members", len(members))
				}
				warmed.Store(new(int), true)
				return nil
			})
			checkFormed(t, results, records)
			count := 0
			warmed.Range(func(any, any) bool { count++; return true })
			if count != n {
				t.Errorf("%d of %d members were warmed up", count, n)
			}
		})
	}
}

// A worker that does not fit gets an error, and the group forms without it.
func TestFormStaticRefuses(t *testing.T) {
	tests := map[string]struct {
		modify     func(r *Record) // changes a record with rank 1 of 3
		want       error
		afterValid bool // the worker comes after the valid one
	}{
		"no name":           {func(r *Record) { r.Name = "" }, &NameError{}, false},
		"name with a blank": {func(r *Record) { r.Name = "a b" }, &NameError{Name: "a b"}, false},
		"rank too high":     {func(r *Record) { r.ID = 3 }, &RankError{Worker: "w1", Rank: 3, WorldSize: 3}, false},
		"rank below 0":      {func(r *Record) { r.ID = -1 }, &RankError{Worker: "w1", Rank: -1, WorldSize: 3}, false},
		"world size 0":      {func(r *Record) { r.WorldSize = 0 }, &WorldSizeError{Worker: "w1"}, false},
		"other world size": {
			func(r *Record) { r.WorldSize = 4 }, &WorldSizeError{Worker: "w1", WorldSize: 4, By: "w0", Want: 3}, false,
		},
		"other version": {
			func(r *Record) { r.Version = 2 }, &VersionError{Worker: "w1", Version: 2, By: "w0", Want: 1}, false,
		},
		"TLS": {
			func(r *Record) { r.Secure = true }, &SecurityError{Worker: "w1", Secure: true, By: "w0"}, false,
		},
		"no address": {func(r *Record) { r.Address = "" }, &AddressError{Worker: "w1", Host: "host1"}, false},
		"unspecified address": {
			func(r *Record) { r.Address = "[::]:80" },
			&AddressError{Worker: "w1", Host: "host1", Address: "[::]:80"}, false,
		},
		"name of another": {
			func(r *Record) { r.Name = "w0" },
			&NameTakenError{Name: "w0", ID: 0, Host: "host0", Address: "10.0.0.1:4000"}, false,
		},
		"rank of another": {
			func(r *Record) { r.ID = 0 },
			&RankTakenError{Worker: "w1", Rank: 0, By: "w0", Host: "host0", Address: "10.0.0.1:4000"}, false,
		},
		"twice": {
			func(r *Record) { r.Incarnation++ },
			&NameTakenError{Name: "w1", ID: 1, Host: "host1", Address: "10.0.0.2:4001"}, true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, records := kvstore.NewHashStore(), members(3)
				results := make([]formResult, 3)
				var wg sync.WaitGroup
				begin := func(i int) {
					wg.Go(func() {
						results[i].members, results[i].err = FormStatic(t.Context(), store, records[i], nil)
					})
					synctest.Wait()
				}
				begin(0)
				if tc.afterValid {
					begin(1)
				}
				bad := member(1, 3)
				tc.modify(&bad)
				_, err := FormStatic(t.Context(), store, bad, nil)
				if diff := cmp.Diff(tc.want, err); diff != "" {
					t.Errorf("refused with %v (-want +got):\n%s", err, diff)
				}
				if err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) < 20) {
					t.Errorf("text %q", err)
				}
				if !tc.afterValid {
					begin(1)
				}
				begin(2)
				wg.Wait()
				checkFormed(t, results, records)
			})
		})
	}
}

// Each member checks all records and gets the same error.
func TestFormStaticChecksTogether(t *testing.T) {
	tests := map[string]struct {
		modify func(records []Record)
		want   string
	}{
		"loopback": {
			func(r []Record) { r[2].Address = "127.0.0.1:99" },
			`worker "w2" on host host2 listens on 127.0.0.1:99, which worker "w0"`,
		},
		"localhost": {
			func(r []Record) { r[2].Address = "localhost:99" },
			`worker "w2" on host host2 listens on localhost:99`,
		},
		"device map": {func(r []Record) {
			r[1].DeviceMaps = map[string]device.Map{"w9": {device.CUDA(0): device.CUDA(0)}}
		}, "w9"},
		"device's index": {func(r []Record) { r[1].Devices = []device.Device{device.CUDA(7)} }, "cuda:7"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				records := members(4)
				tc.modify(records)
				for i, end := range formAll(t.Context(), sharedStore(kvstore.NewHashStore()), records, nil) {
					if end.err == nil || !strings.Contains(end.err.Error(), tc.want) {
						t.Errorf("member %d: %v, want %q", i, end.err, tc.want)
					}
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // loopback is valid on one host
		records := members(3)
		for i := range records {
			records[i].Host, records[i].Address = "h", fmt.Sprintf("127.0.0.1:%d", 1+i)
		}
		checkFormed(t, formAll(t.Context(), sharedStore(kvstore.NewHashStore()), records, nil), records)
	})
}

// A record that other members could not decode is refused before they see it.
func TestFormStaticRefusesUnreadableRecord(t *testing.T) {
	store, r := kvstore.NewHashStore(), member(0, 1)
	r.Devices = []device.Device{{}}
	_, err := FormStatic(t.Context(), store, r, nil)
	if err == nil || !strings.Contains(err.Error(), `worker "w0": its record`) {
		t.Error(err)
	}
	if n, _ := store.NumKeys(t.Context()); n != 0 {
		t.Errorf("%d keys were written", n)
	}
}

// A member whose warm fails ends the formation for all others.
func TestFormStaticWarmUpFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errSick, store, records := errors.New("no reply"), kvstore.NewHashStore(), members(4)
		results := make([]formResult, 4)
		var wg sync.WaitGroup
		for i, r := range records {
			wg.Go(func() {
				warm := func(ctx context.Context, _ []Record) error {
					if i == 2 {
						return errSick
					}
					<-ctx.Done()
					return context.Cause(ctx)
				}
				results[i].members, results[i].err = FormStatic(t.Context(), store, r, warm)
			})
		}
		wg.Wait()
		for i, end := range results {
			var failed *FailedError
			if i == 2 && !errors.Is(end.err, errSick) || i != 2 && (!errors.As(end.err, &failed) || failed.By != "w2") {
				t.Errorf("member %d: %v", i, end.err)
			}
		}
	})
}

// Members that wait get the names of the missing ones, and a failed group stays failed.
func TestFormStaticMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		store, records := kvstore.NewHashStore(), members(4)
		start := time.Now()
		results := formAll(ctx, sharedStore(store), []Record{records[0], records[2]}, nil)
		if took := time.Since(start); took > time.Minute { // Rank 0 does not wait for a member that never came.
			t.Errorf("took %v", took)
		}
		named := 0
		for i, end := range results {
			var missing *MissingError
			var failed *FailedError
			switch {
			case errors.As(end.err, &missing):
				named++
				diff := cmp.Diff([]int{1, 3}, missing.Ranks)
				if diff != "" || missing.Step != StepJoin || !errors.Is(end.err, kvstore.ErrTimeout) {
					t.Errorf("member %d: %v", i, end.err)
				}
			case !errors.As(end.err, &failed) || !strings.Contains(failed.Text, "ranks 1, 3"):
				t.Errorf("member %d: %v", i, end.err)
			}
		}
		if named == 0 {
			t.Error("no error names the missing members")
		}
		_, err := FormStatic(t.Context(), store, records[1], nil)
		if _, ok := errors.AsType[*FailedError](err); !ok {
			t.Errorf("a late member got %v", err)
		}
	})
}

// A name is free if its holder was refused and died before it could withdraw.
func TestFormStaticNameOfOneRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, records := kvstore.NewHashStore(), members(2)
		bad := member(0, 2)
		bad.Name, bad.Incarnation = "w1", 7
		data, err := bad.encode()
		if err != nil {
			t.Fatal(err)
		}
		store.Set(t.Context(), nameKey+"w1", data)
		results := make([]formResult, 2)
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() { results[i].members, results[i].err = FormStatic(t.Context(), store, records[i], nil) })
			synctest.Wait()
		}
		wg.Wait()
		checkFormed(t, results, records)
	})
}

// A claim that the store did not carry out leaves nothing. A claim of which only the reply was lost is valid.
func TestFormStaticClaimFails(t *testing.T) {
	const rankClaim = 2 // operations 0 and 1 claim the terms and the name
	for _, f := range []fault{{at: rankClaim}, {at: rankClaim, done: true}} {
		synctest.Test(t, func(t *testing.T) {
			store, records := kvstore.NewHashStore(), members(2)
			bad, first := newFaulty(store, f), make(chan formResult, 1)
			go func() {
				all, err := FormStatic(t.Context(), bad, records[1], nil)
				first <- formResult{all, err}
			}()
			synctest.Wait()
			if !f.done {
				if end := <-first; !errors.Is(end.err, kvstore.ErrConnection) {
					t.Errorf("%v: %v", f, end.err)
				}
				records[1].Incarnation++
				go func() {
					all, err := FormStatic(t.Context(), store, records[1], nil)
					first <- formResult{all, err}
				}()
			}
			all, err := FormStatic(t.Context(), store, records[0], nil)
			checkFormed(t, []formResult{{all, err}, <-first}, records)
		})
	}
}

// One operation of one member fails in every way, with or without the member's later ones. All members that succeed
// have the same members. All members whose store works again get the same outcome. Every failure names a member.
func TestFormStaticWithFaults(t *testing.T) {
	const worldSize = 3
	cases, succeeded := 0, 0
	for rank := range worldSize {
		for n, reached := 0, true; reached; n++ {
			reached = false
			for _, f := range faults(n) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					store := kvstore.NewHashStore()
					bad := newFaulty(store, f)
					start := time.Now()
					results := formAll(ctx, func(i int) kvstore.Store {
						if i == rank {
							return bad
						}
						return store
					}, members(worldSize), nil)
					if took := time.Since(start); took > 10*time.Second+2*cleanupTimeout {
						t.Errorf("rank %d, %v: took %v", rank, f, took)
					}
					reached = reached || bad.operations() > n
					cases++
					if checkAlike(t, fmt.Sprintf("rank %d, %v", rank, f), results, rank, f) {
						succeeded++
					}
				})
			}
		}
	}
	t.Logf("%d cases, in %d of them the group formed", cases, succeeded)
}

// checkAlike checks that all members got the same outcome, and reports whether the group formed.
func checkAlike(t *testing.T, what string, results []formResult, rank int, f fault) (formed bool) {
	t.Helper()
	formed = results[(rank+1)%len(results)].err == nil
	for i, end := range results {
		if i == rank && f.dies {
			continue
		}
		if (end.err == nil) != formed {
			t.Errorf("%s: outcomes differ: member %d got %v", what, i, end.err)
		}
		var missing *MissingError
		var failed *FailedError
		switch {
		case end.err == nil:
			if diff := cmp.Diff(members(len(results)), end.members); diff != "" {
				t.Errorf("%s: member %d has other members:\n%s", what, i, diff)
			}
		case i == rank:
		case errors.As(end.err, &missing):
			if !cmp.Equal([]int{rank}, missing.Ranks) {
				t.Errorf("%s: member %d: %v", what, i, end.err)
			}
		case errors.As(end.err, &failed):
			if failed.ID != rank && !strings.Contains(failed.Text, fmt.Sprint("rank ", rank)) &&
				!strings.Contains(failed.Text, rankKey+fmt.Sprint(rank)) {
				t.Errorf("%s: member %d: %v", what, i, end.err)
			}
		case errors.Is(end.err, kvstore.ErrTimeout) && strings.Contains(end.err.Error(), rankKey+fmt.Sprint(rank)):
			// The timeout came while this member waited, before it looked up the missing ones.
		default:
			t.Errorf("%s: member %d: %v names nobody", what, i, end.err)
		}
	}
	return formed
}
