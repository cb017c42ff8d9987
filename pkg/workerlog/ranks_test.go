package workerlog

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRanks(t *testing.T) {
	one := func(rank int) RankRange { return RankRange{false, rank, rank} }
	for _, tt := range []struct {
		in, want string
		set      RankSet
		bad      bool
	}{
		{in: "", want: "", set: nil},
		{in: "0", want: "0", set: RankSet{one(0)}},
		{in: "2,0, 11", want: "0,2,11", set: RankSet{one(0), one(2), one(11)}},
		{in: "1,1", want: "1", set: RankSet{one(1)}},
		{in: "g3,0,4-7", want: "0,4-7,g3", set: RankSet{one(0), {false, 4, 7}, {true, 3, 3}}},
		{in: "1,", bad: true},
		{in: ",", bad: true},
		{in: "a", bad: true},
		{in: "-1", bad: true},
		{in: "7-4", bad: true},
		{in: "1 2", bad: true},
		{in: "99999999999999999999", bad: true},
	} {
		got, err := ParseRanks(tt.in)
		if diff := cmp.Diff(tt.set, got); diff != "" || (err != nil) != tt.bad {
			t.Errorf("ParseRanks(%q): %v (-want +got):\n%s", tt.in, err, diff)
		}
		if got.String() != tt.want {
			t.Errorf("ParseRanks(%q).String() = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestRankSetHas(t *testing.T) {
	set, err := ParseRanks("0,4-7,g12")
	if err != nil {
		t.Fatal(err)
	}
	for w, want := range map[Ranks]bool{
		{0, 9}: true, {1, 0}: false, {4, 4}: true, {7, 1}: true,
		{8, 7}: false, {9, 12}: true, {12, 1}: false,
	} {
		if set.Has(w) != want {
			t.Errorf("Has(%+v) = %v", w, !want)
		}
	}
	if !RankSet(nil).Has(Ranks{3, 3}) {
		t.Error("no filter hides a worker")
	}
}

func FuzzParseRanks(f *testing.F) {
	f.Add("0,2,g4-7")
	f.Fuzz(func(t *testing.T, s string) {
		ranks, err := ParseRanks(s)
		if err != nil {
			return
		}
		again, err := ParseRanks(ranks.String())
		if diff := cmp.Diff(ranks, again); diff != "" || err != nil {
			t.Errorf("%q came back as %q: %v\n%s", s, ranks, err, diff)
		}
	})
}
