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

// member is the record of a good member.
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

// met is the end of a Meet.
type met struct {
	members []Record
	err     error
}

// meetAll lets all meet at the same time, each with its store, and returns their ends in order.
func meetAll(ctx context.Context, stores func(i int) kvstore.Store, records []Record, warm func(context.Context, []Record) error) []met {
	ends := make([]met, len(records))
	var wg sync.WaitGroup
	for i, r := range records {
		wg.Go(func() { ends[i].members, ends[i].err = FormStatic(ctx, stores(i), r, warm) })
	}
	wg.Wait()
	return ends
}

// checkMet wants all to have succeeded with the same members.
func checkMet(t *testing.T, ends []met, want []Record) {
	t.Helper()
	for i, end := range ends {
		if end.err != nil {
			t.Errorf("member %d: %v", i, end.err)
		} else if diff := cmp.Diff(want, end.members); diff != "" {
			t.Errorf("member %d has other members (-want +got):\n%s", i, diff)
		}
	}
}

func one(s kvstore.Store) func(int) kvstore.Store { return func(int) kvstore.Store { return s } }

func TestFormStatic(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8, 64} {
		synctest.Test(t, func(t *testing.T) {
			records := members(n)
			records[0].DeviceMaps = map[string]device.Map{records[n-1].Name: {device.CUDA(1): device.CUDA(0)}}
			var warmed sync.Map
			ends := meetAll(t.Context(), one(kvstore.NewHashStore()), records, func(_ context.Context, members []Record) error {
				if len(members) != n {
					t.Errorf("warm of %d members", len(members))
				}
				warmed.Store(new(int), true)
				return nil
			})
			checkMet(t, ends, records)
			count := 0
			warmed.Range(func(any, any) bool { count++; return true })
			if count != n {
				t.Errorf("%d of %d members were warmed up", count, n)
			}
		})
	}
}

// A worker that does not fit is refused by itself, and the group completes without it.
func TestFormStaticRefuses(t *testing.T) {
	tests := map[string]struct {
		spoil    func(r *Record) // of a worker with rank 1 of 3
		want     error
		timedOut bool // it comes when the right one is there
	}{
		"no name":               {func(r *Record) { r.Name = "" }, &NameError{}, false},
		"name with a blank":     {func(r *Record) { r.Name = "a b" }, &NameError{Name: "a b"}, false},
		"rank too high":         {func(r *Record) { r.ID = 3 }, &RankError{Worker: "w1", Rank: 3, WorldSize: 3}, false},
		"rank below 0":          {func(r *Record) { r.ID = -1 }, &RankError{Worker: "w1", Rank: -1, WorldSize: 3}, false},
		"world size 0":          {func(r *Record) { r.WorldSize = 0 }, &WorldSizeError{Worker: "w1"}, false},
		"other world size":      {func(r *Record) { r.WorldSize = 4 }, &WorldSizeError{Worker: "w1", WorldSize: 4, By: "w0", Want: 3}, false},
		"other version":         {func(r *Record) { r.Version = 2 }, &VersionError{Worker: "w1", Version: 2, By: "w0", Want: 1}, false},
		"TLS":                   {func(r *Record) { r.Secure = true }, &SecurityError{Worker: "w1", Secure: true, By: "w0"}, false},
		"no address":            {func(r *Record) { r.Address = "" }, &AddressError{Worker: "w1", Host: "host1"}, false},
		"address of everything": {func(r *Record) { r.Address = "[::]:80" }, &AddressError{Worker: "w1", Host: "host1", Address: "[::]:80"}, false},
		"name of another": {
			func(r *Record) { r.Name = "w0" }, &NameTakenError{Name: "w0", ID: 0, Host: "host0", Address: "10.0.0.1:4000"}, false,
		},
		"rank of another": {
			func(r *Record) { r.ID = 0 }, &RankTakenError{Worker: "w1", Rank: 0, By: "w0", Host: "host0", Address: "10.0.0.1:4000"}, false,
		},
		"twice": {
			func(r *Record) { r.Incarnation++ }, &NameTakenError{Name: "w1", ID: 1, Host: "host1", Address: "10.0.0.2:4001"}, true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, records := kvstore.NewHashStore(), members(3)
				ends := make([]met, 3)
				var wg sync.WaitGroup
				begin := func(i int) {
					wg.Go(func() { ends[i].members, ends[i].err = FormStatic(t.Context(), store, records[i], nil) })
					synctest.Wait()
				}
				begin(0)
				if tc.timedOut {
					begin(1)
				}
				bad := member(1, 3)
				tc.spoil(&bad)
				_, err := FormStatic(t.Context(), store, bad, nil)
				if diff := cmp.Diff(tc.want, err); diff != "" {
					t.Errorf("refused with %v (-want +got):\n%s", err, diff)
				}
				if err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) < 20) {
					t.Errorf("text %q", err)
				}
				if !tc.timedOut {
					begin(1)
				}
				begin(2)
				wg.Wait()
				checkMet(t, ends, records)
			})
		})
	}
}

// What members say together is found by each, with the same error.
func TestFormStaticChecksTogether(t *testing.T) {
	tests := map[string]struct {
		spoil func(records []Record)
		want  string
	}{
		"loopback":       {func(r []Record) { r[2].Address = "127.0.0.1:99" }, `worker "w2" on host host2 listens on 127.0.0.1:99, which worker "w0"`},
		"localhost":      {func(r []Record) { r[2].Address = "localhost:99" }, `worker "w2" on host host2 listens on localhost:99`},
		"device map":     {func(r []Record) { r[1].DeviceMaps = map[string]device.Map{"w9": {device.CUDA(0): device.CUDA(0)}} }, "w9"},
		"device's index": {func(r []Record) { r[1].Devices = []device.Device{device.CUDA(7)} }, "cuda:7"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				records := members(4)
				tc.spoil(records)
				for i, end := range meetAll(t.Context(), one(kvstore.NewHashStore()), records, nil) {
					if end.err == nil || !strings.Contains(end.err.Error(), tc.want) {
						t.Errorf("member %d: %v, want %q", i, end.err, tc.want)
					}
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // loopback is good on one host
		records := members(3)
		for i := range records {
			records[i].Host, records[i].Address = "h", fmt.Sprintf("127.0.0.1:%d", 1+i)
		}
		checkMet(t, meetAll(t.Context(), one(kvstore.NewHashStore()), records, nil), records)
	})
}

// A record that the others could not read is refused before they see it.
func TestFormStaticRefusesWhatCannotBeRead(t *testing.T) {
	store, r := kvstore.NewHashStore(), member(0, 1)
	r.Devices = []device.Device{{}}
	if _, err := FormStatic(t.Context(), store, r, nil); err == nil || !strings.Contains(err.Error(), `worker "w0": its record`) {
		t.Error(err)
	}
	if n, _ := store.NumKeys(t.Context()); n != 0 {
		t.Errorf("%d keys were written", n)
	}
}

// A member whose warm-up fails ends that of all others.
func TestFormStaticWarmUpFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sick, store, records := errors.New("nobody answers"), kvstore.NewHashStore(), members(4)
		ends := make([]met, 4)
		var wg sync.WaitGroup
		for i, r := range records {
			wg.Go(func() {
				ends[i].members, ends[i].err = FormStatic(t.Context(), store, r, func(ctx context.Context, _ []Record) error {
					if i == 2 {
						return sick
					}
					<-ctx.Done()
					return context.Cause(ctx)
				})
			})
		}
		wg.Wait()
		for i, end := range ends {
			var failed *FailedError
			if i == 2 && !errors.Is(end.err, sick) || i != 2 && (!errors.As(end.err, &failed) || failed.By != "w2") {
				t.Errorf("member %d: %v", i, end.err)
			}
		}
	})
}

// Whoever waits is told who was missing, and a group that has failed stays so.
func TestFormStaticMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		store, records := kvstore.NewHashStore(), members(4)
		begun := time.Now()
		ends := meetAll(ctx, one(store), []Record{records[0], records[2]}, nil)
		if took := time.Since(begun); took > time.Minute { // Rank 0 waits for nobody who has not come.
			t.Errorf("it took %v", took)
		}
		named := 0
		for i, end := range ends {
			var missing *MissingError
			var failed *FailedError
			switch {
			case errors.As(end.err, &missing):
				named++
				if diff := cmp.Diff([]int{1, 3}, missing.Ranks); diff != "" || missing.Step != StepJoin || !errors.Is(end.err, kvstore.ErrTimeout) {
					t.Errorf("member %d: %v", i, end.err)
				}
			case !errors.As(end.err, &failed) || !strings.Contains(failed.Text, "ranks 1, 3"):
				t.Errorf("member %d: %v", i, end.err)
			}
		}
		if named == 0 {
			t.Error("nobody has named the missing")
		}
		_, err := FormStatic(t.Context(), store, records[1], nil)
		if _, ok := errors.AsType[*FailedError](err); !ok {
			t.Errorf("who comes too late has %v", err)
		}
	})
}

// A name that a worker held which was refused, and died before it could withdraw, is free.
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
		ends := make([]met, 2)
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() { ends[i].members, ends[i].err = FormStatic(t.Context(), store, records[i], nil) })
			synctest.Wait()
		}
		wg.Wait()
		checkMet(t, ends, records)
	})
}

// A claim that the store has not carried out leaves nothing, and one of which only the answer was lost stands.
func TestFormStaticClaimFails(t *testing.T) {
	const rankClaim = 2 // after the terms and the name
	for _, f := range []fault{{at: rankClaim}, {at: rankClaim, done: true}} {
		synctest.Test(t, func(t *testing.T) {
			store, records := kvstore.NewHashStore(), members(2)
			bad, first := newFaulty(store, f), make(chan met, 1)
			go func() {
				all, err := FormStatic(t.Context(), bad, records[1], nil)
				first <- met{all, err}
			}()
			synctest.Wait()
			if !f.done {
				if end := <-first; !errors.Is(end.err, kvstore.ErrConnection) {
					t.Errorf("%v: %v", f, end.err)
				}
				records[1].Incarnation++
				go func() {
					all, err := FormStatic(t.Context(), store, records[1], nil)
					first <- met{all, err}
				}()
			}
			all, err := FormStatic(t.Context(), store, records[0], nil)
			checkMet(t, []met{{all, err}, <-first}, records)
		})
	}
}

// One operation of one member fails, in every way, and then that member's later ones too or not: the members that succeed have the
// same members; those whose store can be reached again end alike; and an end that is not success names somebody.
func TestFormStaticWithFaults(t *testing.T) {
	const worldSize = 3
	cases, succeeded := 0, 0
	for rank := range worldSize {
		for n, struck := 0, true; struck; n++ {
			struck = false
			for _, f := range faults(n) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					store := kvstore.NewHashStore()
					bad := newFaulty(store, f)
					begun := time.Now()
					ends := meetAll(ctx, func(i int) kvstore.Store {
						if i == rank {
							return bad
						}
						return store
					}, members(worldSize), nil)
					if took := time.Since(begun); took > 10*time.Second+2*cleanupTimeout {
						t.Errorf("rank %d, %v: it took %v", rank, f, took)
					}
					struck = struck || bad.operations() > n
					cases++
					if checkAlike(t, fmt.Sprintf("rank %d, %v", rank, f), ends, rank, f) {
						succeeded++
					}
				})
			}
		}
	}
	t.Logf("%d cases, in %d of them the group formed", cases, succeeded)
}

// checkAlike tells whether the group has formed.
func checkAlike(t *testing.T, what string, ends []met, rank int, f fault) (formed bool) {
	t.Helper()
	formed = ends[(rank+1)%len(ends)].err == nil
	for i, end := range ends {
		if i == rank && f.dies {
			continue
		}
		if (end.err == nil) != formed {
			t.Errorf("%s: they do not end alike: member %d with %v", what, i, end.err)
		}
		var missing *MissingError
		var failed *FailedError
		switch {
		case end.err == nil:
			if diff := cmp.Diff(members(len(ends)), end.members); diff != "" {
				t.Errorf("%s: member %d has other members:\n%s", what, i, diff)
			}
		case i == rank:
		case errors.As(end.err, &missing):
			if !cmp.Equal([]int{rank}, missing.Ranks) {
				t.Errorf("%s: member %d: %v", what, i, end.err)
			}
		case errors.As(end.err, &failed):
			if failed.ID != rank && !strings.Contains(failed.Text, fmt.Sprint("rank ", rank)) && !strings.Contains(failed.Text, rankKey+fmt.Sprint(rank)) {
				t.Errorf("%s: member %d: %v", what, i, end.err)
			}
		case errors.Is(end.err, kvstore.ErrTimeout) && strings.Contains(end.err.Error(), rankKey+fmt.Sprint(rank)):
			// It came when this member's time was over, and before it looked who was missing.
		default:
			t.Errorf("%s: member %d: %v names nobody", what, i, end.err)
		}
	}
	return formed
}
