package agent

import (
	"errors"
	"testing"
)

func TestTransitions(t *testing.T) {
	all := []WorkerState{Unknown, Init, Healthy, Unhealthy, Stopped, Succeeded, Failed}
	allowed := map[[2]WorkerState]bool{
		{Init, Healthy}: true, {Init, Stopped}: true,
		{Healthy, Healthy}: true, {Healthy, Unhealthy}: true, {Healthy, Stopped}: true, {Healthy, Succeeded}: true, {Healthy, Failed}: true,
		{Unhealthy, Healthy}: true, {Unhealthy, Unhealthy}: true, {Unhealthy, Stopped}: true, {Unhealthy, Succeeded}: true, {Unhealthy, Failed}: true,
		{Failed, Stopped}: true, {Succeeded, Stopped}: true, {Stopped, Healthy}: true, {Stopped, Stopped}: true,
	}
	for _, from := range all {
		for _, to := range all {
			got, err := next(from, to)
			if to == Unknown || allowed[[2]WorkerState{from, to}] {
				if err != nil || got != to {
					t.Errorf("%v to %v: %v, %v", from, to, got, err)
				}
				continue
			}
			var bad *StateError
			if !errors.As(err, &bad) || got != Unknown || bad.From != from || bad.To != to {
				t.Errorf("%v to %v is allowed: %v, %v", from, to, got, err)
			}
		}
	}
	if Healthy.String() != "HEALTHY" || WorkerState(42).String() != "WorkerState(42)" || Failed.metric() != "failed" {
		t.Error("names")
	}
	if !Healthy.IsRunning() || !Unhealthy.IsRunning() || Stopped.IsRunning() {
		t.Error("IsRunning")
	}
}

func TestDecide(t *testing.T) {
	tests := []struct {
		state              WorkerState
		remaining, waiting int
		want               action
	}{
		{Succeeded, 0, 0, finish},
		{Succeeded, 3, 2, finish},
		{Failed, 0, 0, giveUp},
		{Failed, 1, 0, restartCharged},
		{Failed, 1, 1, restartCharged},
		{Unhealthy, 0, 5, giveUp},
		{Unhealthy, 2, 0, restartCharged},
		{Healthy, 0, 0, keepWatching},
		{Healthy, 0, 1, restartMembership},
		{Unknown, 3, 0, abort},
		{Init, 3, 0, abort},
		{Stopped, 3, 0, abort},
	}
	for _, tt := range tests {
		if got := decide(tt.state, tt.remaining, tt.waiting); got != tt.want {
			t.Errorf("decide(%v, %d, %d) = %v, want %v", tt.state, tt.remaining, tt.waiting, got, tt.want)
		}
	}
}

func TestFlakiness(t *testing.T) {
	tests := []struct {
		failed         bool
		remaining, max int
		want           int
	}{
		{false, 3, 3, 0}, {false, 2, 3, 25}, {false, 0, 3, 75}, {false, 0, 0, 0}, {true, 3, 3, 100},
	}
	for _, tt := range tests {
		if got := flakiness(tt.failed, tt.remaining, tt.max); got != tt.want {
			t.Errorf("flakiness(%v, %d, %d) = %d, want %d", tt.failed, tt.remaining, tt.max, got, tt.want)
		}
	}
}
