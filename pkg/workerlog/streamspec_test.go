package workerlog

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseStreamSpec(t *testing.T) {
	one := func(rank int, std StreamSet) StreamRange { return StreamRange{RankRange{First: rank, Last: rank}, std} }
	for _, tt := range []struct {
		in   string
		want StreamSpec
	}{
		{"0", StreamSpec{}},
		{"1", StreamSpec{Default: Stdout}},
		{"2", StreamSpec{Default: Stderr}},
		{"3", StreamSpec{Default: AllStreams}},
		{"0:3", StreamSpec{ByRank: []StreamRange{one(0, AllStreams)}}},
		{"0:3,1:2,2:0", StreamSpec{ByRank: []StreamRange{one(0, AllStreams), one(1, Stderr), one(2, NoStreams)}}},
		{"7:1,10:3,127:2", StreamSpec{ByRank: []StreamRange{one(7, Stdout), one(10, AllStreams), one(127, Stderr)}}},
		{"0-7:3,8-15:1", StreamSpec{ByRank: []StreamRange{{RankRange{false, 0, 7}, AllStreams}, {RankRange{false, 8, 15}, Stdout}}}},
		{"0-999999999999:3", StreamSpec{ByRank: []StreamRange{{RankRange{false, 0, 999_999_999_999}, AllStreams}}}},
		{"1:3,g0:3,g12-15:1", StreamSpec{ByRank: []StreamRange{one(1, AllStreams), {RankRange{true, 0, 0}, AllStreams}, {RankRange{true, 12, 15}, Stdout}}}},
	} {
		got, err := ParseStreamSpec(tt.in)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("ParseStreamSpec(%q): %v (-want +got):\n%s", tt.in, err, diff)
		}
		if got.String() != tt.in {
			t.Errorf("ParseStreamSpec(%q).String() = %q", tt.in, got)
		}
	}
}

func TestParseStreamSpecRefuses(t *testing.T) {
	for _, in := range []string{
		"", "4", "-1", "33", " 3", "3 ", "a", "0:", ":3", ":", "0:4", "0:3,", ",0:3", "0:3,1", "0:3:1", "-1:3", "+1:3",
		"0:3, 1:2", "0:3,0:2", "1:3,01:3", "99999999999999999999:1", "٣:1",
		"0-:3", "-3:3", "3-1:3", "0-1-2:3", "0-g1:3", "g:3", "gg0:3", "G0:3", "g3", "0-3:3,3:1", "2:3,0-9:1", "g0-3:3,g2:1",
	} {
		spec, err := ParseStreamSpec(in)
		if err == nil {
			t.Errorf("ParseStreamSpec(%q) = %v, want an error", in, spec)
		} else if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), `"`+in+`"`) {
			t.Errorf("ParseStreamSpec(%q): message %q does not name the value on one line", in, err)
		}
	}
}

func TestParseStreamSpecNamesWhatIsTwice(t *testing.T) {
	for in, want := range map[string]string{"0-5:3,4-9:1": " names local rank 4 twice", "g7:3,g0-9:1": " names global rank 7 twice"} {
		if _, err := ParseStreamSpec(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseStreamSpec(%q): %v, want one that has %q", in, err, want)
		}
	}
}

func TestStreamSpecOf(t *testing.T) {
	for _, tt := range []struct {
		spec          string
		local, global int
		want          StreamSet
	}{
		{"0", 5, 5, NoStreams},
		{"2", 5, 5, Stderr},
		{"0:3,12:1", 0, 16, AllStreams},
		{"0:3,12:1", 1, 0, NoStreams},
		{"0:3,12:1", 12, 12, Stdout},
		{"8-15:1", 7, 7, NoStreams},
		{"8-15:1", 8, 0, Stdout},
		{"8-15:1", 15, 0, Stdout},
		{"8-15:1", 16, 8, NoStreams},
		{"g12-15:1", 4, 12, Stdout},
		{"g12-15:1", 12, 4, NoStreams},
		{"4:1,g12:2", 4, 12, AllStreams}, // by both ranks
	} {
		spec, err := ParseStreamSpec(tt.spec)
		if err != nil {
			t.Fatal(err)
		}
		if got := spec.Of(Ranks{tt.local, tt.global}); got != tt.want {
			t.Errorf("(%v).Of(%d, %d) = %v, want %v", spec, tt.local, tt.global, got, tt.want)
		}
	}
}

func FuzzParseStreamSpec(f *testing.F) {
	for _, s := range []string{"", "3", "0:3,1:2", "10:1", "0:3,0:3", "0:3,", "g1:2,0-7:3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		spec, err := ParseStreamSpec(s)
		if err != nil {
			return
		}
		again, err := ParseStreamSpec(spec.String())
		if diff := cmp.Diff(spec, again); diff != "" || err != nil {
			t.Errorf("%q came back as %q: %v\n%s", s, spec, err, diff)
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
