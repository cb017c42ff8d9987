package device

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestReverse(t *testing.T) {
	workers := []Worker{
		{Name: "a", Maps: map[string]Map{"b": {CUDA(0): CUDA(1), CPU(): CPU()}, "c": {CUDA(0): CUDA(2)}}},
		{Name: "b", Maps: map[string]Map{"b": {CUDA(0): CUDA(1)}}},
		{Name: "c", Maps: map[string]Map{"a": {CUDA(3): CUDA(0)}}},
		{Name: "d", Maps: map[string]Map{"b": {}}},
	}
	want := map[string]Map{"a": {CUDA(1): CUDA(0), CPU(): CPU()}, "b": {CUDA(1): CUDA(0)}, "d": {}}
	if diff := cmp.Diff(want, Reverse("b", workers)); diff != "" {
		t.Errorf("b's (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]Map{}, Reverse("d", workers)); diff != "" {
		t.Errorf("d's (-want +got):\n%s", diff)
	}
}

func TestList(t *testing.T) {
	own := map[string]Map{"b": {CUDA(3): CUDA(9), CPU(): CPU()}, "c": {CUDA(0): CUDA(8)}}
	reverse := map[string]Map{"b": {CUDA(10): CUDA(7)}, "a": {CUDA(3): CUDA(6), CUDA(2): CPU()}}
	for _, tt := range []struct {
		name         string
		declared     []Device
		own, reverse map[string]Map
		want         []Device
	}{
		{name: "nothing"},
		{name: "own maps", own: own, want: []Device{CUDA(0), CUDA(3)}},
		{name: "reverse maps", reverse: reverse, want: []Device{CUDA(2), CUDA(3), CUDA(10)}},
		{name: "both", own: own, reverse: reverse, want: []Device{CUDA(0), CUDA(2), CUDA(3), CUDA(10)}},
		{name: "only the cpu", own: map[string]Map{"b": {CPU(): CUDA(0)}}},
		{name: "declared", declared: []Device{CUDA(5), CPU(), CUDA(1)}, own: own, reverse: reverse, want: []Device{CPU(), CUDA(1), CUDA(5)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			given := slices.Clone(tt.declared)
			if diff := cmp.Diff(tt.want, List(tt.declared, tt.own, tt.reverse)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(given, tt.declared); diff != "" {
				t.Errorf("the declared ones were changed (-want +got):\n%s", diff)
			}
		})
	}
}

// anyDevice draws devices of which few are invalid for a worker with some GPUs.
func anyDevice() *rapid.Generator[Device] {
	return rapid.Custom(func(t *rapid.T) Device {
		kind := rapid.SampledFrom([]string{"cuda", "cuda", "cuda", "cuda", "cuda", "cpu", "cpu", "xpu"}).Draw(t, "type")
		if kind == "cpu" {
			return CPU()
		}
		return Device{Type: kind, Index: rapid.SampledFrom([]int{0, 0, 0, 0, 1, 1, 1, 2, 4}).Draw(t, "index")}
	})
}

// anyWorkers draws groups, about half of them valid. Some targets are not in the group.
func anyWorkers() *rapid.Generator[[]Worker] {
	return rapid.Custom(func(t *rapid.T) []Worker {
		workers := make([]Worker, rapid.IntRange(1, 4).Draw(t, "size"))
		target := rapid.Map(rapid.IntRange(0, 6), func(n int) string { return fmt.Sprintf("w%d", max(0, n-2)) })
		for i := range workers {
			workers[i] = Worker{
				Name: fmt.Sprintf("w%d", i), Count: rapid.IntRange(1, 4).Draw(t, "count"),
				Maps: rapid.MapOfN(target, rapid.Map(rapid.MapOfN(anyDevice(), anyDevice(), 0, 2),
					func(m map[Device]Device) Map { return m }), 0, 2).Draw(t, "maps"),
			}
			if rapid.IntRange(0, 3).Draw(t, "declares") == 0 {
				workers[i].Devices = rapid.SliceOfN(anyDevice(), 1, 3).Draw(t, "devices")
			}
		}
		return workers
	})
}

// rebuilt returns the workers with maps that were filled in another order.
func rebuilt(t *rapid.T, workers []Worker) []Worker {
	again := slices.Clone(workers)
	for i, w := range again {
		again[i].Maps = make(map[string]Map)
		for _, target := range rapid.Permutation(slices.Sorted(maps.Keys(w.Maps))).Draw(t, "targets") {
			again[i].Maps[target] = make(Map)
			for _, source := range rapid.Permutation(slices.SortedFunc(maps.Keys(w.Maps[target]), Compare)).Draw(t, "sources") {
				again[i].Maps[target][source] = w.Maps[target][source]
			}
		}
	}
	return again
}

// All members get the same error text, whatever the iteration order of their maps.
func TestSameVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers, static := anyWorkers().Draw(t, "workers"), rapid.Bool().Draw(t, "static")
		want := text(Validate(workers, static))
		for range 5 {
			if got := text(Validate(rebuilt(t, workers), static)); got != want {
				t.Fatalf("%s\nand %s", want, got)
			}
		}
	})
}

// A static group rejects whatever a dynamic group rejects. In addition it rejects only unknown targets.
func TestStaticAsksMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := anyWorkers().Draw(t, "workers")
		static, dynamic := Validate(workers, true), Validate(workers, false)
		if !errors.Is(static, ErrUnknownTarget) && text(static) != text(dynamic) {
			t.Fatalf("static %v, dynamic %v", static, dynamic)
		}
	})
}

// A worker that joins without maps does not make a valid group invalid.
func TestOneMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := anyWorkers().Draw(t, "workers")
		if Validate(workers, true) != nil {
			t.Skip("refused")
		}
		more := rapid.Permutation(append(slices.Clone(workers), Worker{Name: "new", Count: rapid.IntRange(0, 4).Draw(t, "count")})).Draw(t, "more")
		if err := Validate(more, true); err != nil {
			t.Fatal(err)
		}
	})
}

// The reverse of all reverse maps are the maps themselves. A device list contains every device that a call can use.
func TestReverseOfReverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := anyWorkers().Draw(t, "workers")
		if Validate(workers, true) != nil {
			t.Skip("refused")
		}
		back := slices.Clone(workers)
		for i, w := range workers {
			back[i].Maps = Reverse(w.Name, workers)
			devices := append(List(w.Devices, w.Maps, back[i].Maps), CPU())
			for _, m := range append(slices.Collect(maps.Values(w.Maps)), slices.Collect(maps.Values(back[i].Maps))...) {
				for source := range m {
					if !slices.Contains(devices, source) {
						t.Fatalf("%s maps %v, which is not among %v", w.Name, source, devices)
					}
				}
			}
		}
		for _, w := range workers {
			if got := Reverse(w.Name, back); !maps.EqualFunc(got, w.Maps, maps.Equal[Map, Map]) {
				t.Fatalf("%s: %v, want %v", w.Name, got, w.Maps)
			}
		}
	})
}
