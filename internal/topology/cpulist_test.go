package topology

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseCPUList(t *testing.T) {
	tests := []struct {
		in   string
		want []int
		err  string
	}{
		{in: ""},
		{in: "\n"},
		{in: "0", want: []int{0}},
		{in: "0-3,8\n", want: []int{0, 1, 2, 3, 8}},
		{in: "8,0-1", want: []int{0, 1, 8}},
		{in: "1-3,2-4,3", want: []int{1, 2, 3, 4}},
		{in: "5-5", want: []int{5}},
		{in: "3-1", err: `parse CPU list "3-1": range "3-1" is reversed`},
		{in: "1,,2", err: `parse CPU list "1,,2": "" is not a CPU number`},
		{in: "1-", err: `parse CPU list "1-": "" is not a CPU number`},
		{in: "-1", err: `parse CPU list "-1": "" is not a CPU number`},
		{in: "1-2-3", err: `parse CPU list "1-2-3": "2-3" is not a CPU number`},
		{in: "a", err: `parse CPU list "a": "a" is not a CPU number`},
		{in: "1 2", err: `parse CPU list "1 2": "1 2" is not a CPU number`},
		{in: "0-65536", err: `parse CPU list "0-65536": CPU number 65536 is above 65535`},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParseCPUList(tt.in)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ParseCPUList(%q) (-want +got):\n%s", tt.in, diff)
			}
			if diff := cmp.Diff(tt.err, errorText(err)); diff != "" {
				t.Errorf("ParseCPUList(%q) error (-want +got):\n%s", tt.in, diff)
			}
		})
	}
}

func TestFormatCPUList(t *testing.T) {
	tests := []struct {
		in   []int
		want string
	}{
		{nil, ""},
		{[]int{7}, "7"},
		{[]int{0, 1}, "0-1"},
		{[]int{8, 3, 0, 1, 2, 1}, "0-3,8"},
		{[]int{0, 2, 4}, "0,2,4"},
	}
	for _, tt := range tests {
		if got := FormatCPUList(tt.in); got != tt.want {
			t.Errorf("FormatCPUList(%v) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

// A formatted list parses to the same set, in any order of the input.
func TestCPUListRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := rapid.SliceOfDistinct(rapid.IntRange(0, 300), rapid.ID).Draw(t, "set")
		got, err := ParseCPUList(FormatCPUList(set))
		if err != nil {
			t.Fatal(err)
		}
		if want := slices.Sorted(slices.Values(set)); !slices.Equal(got, want) {
			t.Fatalf("read back %v, want %v", got, want)
		}
	})
}

// Every parsed list is ascending, without repetition and within bounds, and formatting it is stable.
func FuzzParseCPUList(f *testing.F) {
	for _, seed := range []string{"", "0-3,8", "3-1", "0-65535", "1,,2", "00-01", " 5 ", "4294967296", "0-1,1-2,9"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		cpus, err := ParseCPUList(list)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of more than one line: %q", err)
			}
			return
		}
		for i, cpu := range cpus {
			if cpu < 0 || cpu > maxCPU || i > 0 && cpu <= cpus[i-1] {
				t.Fatalf("ParseCPUList(%q) = %v", list, cpus)
			}
		}
		short := FormatCPUList(cpus)
		again, err := ParseCPUList(short)
		if err != nil || !slices.Equal(again, cpus) {
			t.Fatalf("%q became %q, which reads as %v, %v", list, short, again, err)
		}
		rand.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		if got := FormatCPUList(again); got != short {
			t.Fatalf("FormatCPUList depends on order: %q and %q", got, short)
		}
	})
}
