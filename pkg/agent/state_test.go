package agent

import (
	"errors"
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
