package agent

import (
	"errors"
	"strings"
	"testing"
)

func TestTransitions(t *testing.T) {
	all := []WorkerState{Unknown, Init, Healthy, Unhealthy, Stopped, Succeeded, Failed}
	allowed := map[[2]WorkerState]bool{
		{Init, Healthy}: true, {Init, Stopped}: true, {Init, Succeeded}: true, {Init, Failed}: true,
		{Healthy, Healthy}: true, {Healthy, Unhealthy}: true, {Healthy, Stopped}: true, {Healthy, Succeeded}: true,
		{Healthy, Failed}:    true,
		{Unhealthy, Healthy}: true, {Unhealthy, Unhealthy}: true, {Unhealthy, Stopped}: true, {Unhealthy, Succeeded}: true,
		{Unhealthy, Failed}: true,
		{Failed, Stopped}:   true, {Succeeded, Stopped}: true, {Succeeded, Succeeded}: true, {Succeeded, Failed}: true,
		{Stopped, Healthy}: true, {Stopped, Stopped}: true, {Stopped, Succeeded}: true, {Stopped, Failed}: true,
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
	if Healthy.String() != "HEALTHY" || WorkerState(42).String() != "WorkerState(42)" {
		t.Error("names")
	}
}

func TestWorkerState(t *testing.T) {
	for state, name := range []string{"UNKNOWN", "INIT", "HEALTHY", "UNHEALTHY", "STOPPED", "SUCCEEDED", "FAILED"} {
		s := WorkerState(state)
		if s.String() != name || s.IsRunning() != strings.HasSuffix(name, "HEALTHY") {
			t.Errorf("%v: want %s; it is running: %t", s, name, s.IsRunning())
		}
	}
}

func TestWorkerString(t *testing.T) {
	const want = "local_rank=1,global_rank=5,role_rank=3,world_size=6,role_world_size=4"
	w := Worker{PID: 7, LocalRank: 1, GlobalRank: 5, RoleRank: 3, WorldSize: 6, RoleWorldSize: 4}
	if got := w.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
