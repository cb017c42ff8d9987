package openfiles

import (
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

func TestShares(t *testing.T) {
	testenv.FileLimit(t, 400)
	if n := Limit(); n != 400 {
		t.Errorf("the limit is %d, want 400", n)
	}
	for most, want := range map[int]int{50: 50, 100: 100, 20_000: 100} {
		if n := ClientShare(most); n != want {
			t.Errorf("at most %d: %d, want %d", most, n, want)
		}
	}
	for most, want := range map[int]int{20: 380, 50: 350, 20_000: 350} {
		if n := ReserveStart(8, most); n != want {
			t.Errorf("the last eighth, at most %d: from %d on, want %d", most, n, want)
		}
	}
}
