package founding

import (
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// Of two groups at most one goes on at the other's cost, whichever of them decides.
func TestPrecedes(t *testing.T) {
	t.Parallel()
	type led struct {
		Standing
		addr string
	}
	var all []led
	for _, hasRound := range []bool{false, true} {
		for index := range 2 {
			for _, addr := range []string{"a:1", "b:1"} {
				all = append(all, led{Standing{HasRound: hasRound, Index: index}, addr})
			}
		}
	}
	for _, one := range all {
		for _, other := range all {
			wins := one.precedes(one.addr, other.Standing, other.addr)
			loses := other.precedes(other.addr, one.Standing, one.addr)
			undecided := one == other || one.HasRound && other.HasRound
			if wins && loses || !wins && !loses != undecided {
				t.Errorf("%+v precedes %+v: %v, and the other way: %v", one, other, wins, loses)
			}
			if one.HasRound && !other.HasRound && !wins {
				t.Errorf("%+v, which has a round, yields to %+v", one, other)
			}
		}
	}
}

// An agent that refers to a leader which is gone is not gone itself: it may be about to elect another one.
func TestReferredToLostLeader(t *testing.T) {
	t.Parallel()
	const addr = "127.0.0.1:1"
	f, now := &State{TTL: time.Minute}, time.Now()
	for _, tt := range []struct {
		at       string
		obstacle coord.Obstacle
		may      bool
	}{
		{addr, coord.ObstacleRefused, false},
		{addr, coord.ObstacleTimeout, true},
		{addr, coord.ObstacleElsewhere, true},
		{"127.0.0.1:2", coord.ObstacleRefused, true},
		{"127.0.0.1:2", coord.ObstacleTimeout, true},
	} {
		err := error(&coord.DialError{Addr: tt.at, Obstacle: tt.obstacle})
		if may := f.mayHaveLeader(now, addr, err); may != tt.may {
			t.Errorf("obstacle %v at %s: it may have a leader: %v", tt.obstacle, tt.at, may)
		}
	}
	for obstacle, may := range map[coord.Obstacle]bool{coord.ObstacleRefused: true, coord.ObstacleElsewhere: false} {
		err := &coord.DialError{Addr: "127.0.0.1:2", Obstacle: obstacle}
		f.mayHaveLeader(now, addr, err)
		if got := f.mayHaveLeader(now.Add(f.TTL), addr, err); got != may {
			t.Errorf("obstacle %v at the address that it has named for a keep-alive time: it may have a leader: %v", obstacle, got)
		}
	}
}
