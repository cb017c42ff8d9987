package procs

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseStdSpec(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want StdSpec
	}{
		{"0", StdSpec{}},
		{"1", StdSpec{Default: Stdout}},
		{"2", StdSpec{Default: Stderr}},
		{"3", StdSpec{Default: StdAll}},
		{"0:3", StdSpec{ByRank: map[int]Std{0: StdAll}}},
		{"0:3,1:2,2:0", StdSpec{ByRank: map[int]Std{0: StdAll, 1: Stderr, 2: StdNone}}},
		{"7:1,10:3,127:2", StdSpec{ByRank: map[int]Std{7: Stdout, 10: StdAll, 127: Stderr}}},
	} {
		got, err := ParseStdSpec(tt.in)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("ParseStdSpec(%q): %v (-want +got):\n%s", tt.in, err, diff)
		}
		if got.String() != tt.in {
			t.Errorf("ParseStdSpec(%q).String() = %q", tt.in, got)
		}
	}
}

func TestParseStdSpecRefuses(t *testing.T) {
	for _, in := range []string{
		"", "4", "-1", "33", " 3", "3 ", "a", "0:", ":3", ":", "0:4", "0:3,", ",0:3", "0:3,1", "0:3:1", "-1:3", "+1:3",
		"0:3, 1:2", "0:3,0:2", "1:3,01:3", "99999999999999999999:1", "٣:1",
	} {
		spec, err := ParseStdSpec(in)
		if err == nil {
			t.Errorf("ParseStdSpec(%q) = %v, want an error", in, spec)
		} else if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), `"`+in+`"`) {
			t.Errorf("ParseStdSpec(%q): message %q does not name the value on one line", in, err)
		}
	}
}

func TestStdSpecOf(t *testing.T) {
	byRank, err := ParseStdSpec("0:3,12:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		spec StdSpec
		rank int
		want Std
	}{
		{StdSpec{}, 5, StdNone},
		{StdSpec{Default: Stderr}, 5, Stderr},
		{byRank, 0, StdAll},
		{byRank, 1, StdNone},
		{byRank, 12, Stdout},
	} {
		if got := tt.spec.Of(tt.rank); got != tt.want {
			t.Errorf("(%v).Of(%d) = %v, want %v", tt.spec, tt.rank, got, tt.want)
		}
	}
}

func FuzzParseStdSpec(f *testing.F) {
	for _, s := range []string{"", "3", "0:3,1:2", "10:1", "0:3,0:3", "0:3,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		spec, err := ParseStdSpec(s)
		if err != nil {
			return
		}
		again, err := ParseStdSpec(spec.String())
		if diff := cmp.Diff(spec, again); diff != "" || err != nil {
			t.Errorf("%q came back as %q: %v\n%s", s, spec, err, diff)
		}
	})
}

func TestParseRanks(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want []int
		bad  bool
	}{
		{in: "", want: nil},
		{in: "0", want: []int{0}},
		{in: "2,0, 11", want: []int{0, 2, 11}},
		{in: "1,1", want: []int{1}},
		{in: "1,", bad: true},
		{in: ",", bad: true},
		{in: "a", bad: true},
		{in: "-1", bad: true},
		{in: "1 2", bad: true},
		{in: "99999999999999999999", bad: true},
	} {
		got, err := ParseRanks(tt.in)
		if diff := cmp.Diff(tt.want, got); diff != "" || (err != nil) != tt.bad {
			t.Errorf("ParseRanks(%q): %v (-want +got):\n%s", tt.in, err, diff)
		}
	}
}

func FuzzParseRanks(f *testing.F) {
	f.Add("0,2")
	f.Fuzz(func(t *testing.T, s string) {
		ranks, err := ParseRanks(s)
		if (err != nil && ranks != nil) || !slices.IsSorted(ranks) || (len(ranks) > 0 && ranks[0] < 0) {
			t.Errorf("ParseRanks(%q) = %v, %v", s, ranks, err)
		}
	})
}

func TestParseFilters(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want []string
	}{
		{"", nil},
		{"apple", []string{"apple"}},
		{"apple,orange", []string{"apple", "orange"}},
		{"a,,b", []string{"a,b"}},
		{"a,,b,c", []string{"a,b", "c"}},
		{"a,,,b", []string{"a,", "b"}},
		{",,", []string{","}},
		{",", nil},
		{"a,", []string{"a"}},
		{" loss = , acc", []string{" loss = ", " acc"}},
	} {
		if diff := cmp.Diff(tt.want, ParseFilters(tt.in)); diff != "" {
			t.Errorf("ParseFilters(%q) (-want +got):\n%s", tt.in, diff)
		}
	}
}

// Any list of substrings survives escaping, unless a comma stands first or last,
// where ",,," can be read two ways.
func FuzzParseFilters(f *testing.F) {
	f.Add("apple", "a,b")
	f.Fuzz(func(t *testing.T, a, b string) {
		ParseFilters(a + b)
		var want []string
		for _, s := range []string{a, b} {
			if s == "" || s[0] == ',' || s[len(s)-1] == ',' {
				return
			}
			want = append(want, s)
		}
		in := strings.ReplaceAll(a, ",", ",,") + "," + strings.ReplaceAll(b, ",", ",,")
		if diff := cmp.Diff(want, ParseFilters(in)); diff != "" {
			t.Errorf("ParseFilters(%q) (-want +got):\n%s", in, diff)
		}
	})
}
