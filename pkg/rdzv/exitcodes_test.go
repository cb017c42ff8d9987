package rdzv

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestParseExitCodes(t *testing.T) {
	for in, want := range map[string]string{
		"": "", " ": "", "3": "3", "10-12, 3,11,4": "3-4,10-12", "1-255": "1-255", "255,254": "254-255", "137": "137",
	} {
		set, err := ParseExitCodes(in)
		if err != nil || set.String() != want {
			t.Errorf("%q: %v, %v, want %s", in, set, err, want)
		}
	}
	for _, in := range []string{"0", "256", "x", "3,", "5-3", "-1", "1--2", "1-", "0-3", "3 4"} {
		if set, err := ParseExitCodes(in); err == nil {
			t.Errorf("%q: %v", in, set)
		}
	}
}

// A set has the codes that it was made of, and survives JSON.
func TestExitCodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		codes := rapid.SliceOf(rapid.IntRange(1, 255)).Draw(t, "codes")
		var set, again ExitCodes
		for _, code := range codes {
			set[code/64] |= 1 << (code % 64)
		}
		data, err := json.Marshal(set)
		if err == nil {
			err = json.Unmarshal(data, &again)
		}
		if err != nil || set != again {
			t.Fatalf("%v became %v, %v", set, again, err)
		}
		for code := -1; code <= 300; code++ {
			if set.Has(code) != slices.Contains(codes, code) {
				t.Fatalf("%s has %d: %v", data, code, set.Has(code))
			}
		}
	})
}
