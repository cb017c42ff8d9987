package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// values returns a gradient whose first value is x.
func values(x float64) []float64 {
	v := make([]float64, weightCount)
	v[0] = x
	return v
}

// The server gets gradients in rank order, in whatever order they arrive.
func TestExchangeCollect(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{1, 2, 3}, {3, 2, 1}, {2, 3, 1}} {
		synctest.Test(t, func(t *testing.T) {
			x := newExchange(parameters{Steps: 7}, 3)
			collected := make(chan [][]float64, 1)
			go func() {
				gradients, _ := x.collect(t.Context())
				collected <- gradients // none if it failed
			}()
			for _, rank := range order {
				synctest.Wait()
				if len(collected) > 0 {
					t.Fatalf("collected before rank %d had pushed", rank)
				}
				if err := x.push(rank, gradient{Steps: 7, Values: values(float64(rank))}); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff([][]float64{values(1), values(2), values(3)}, <-collected); diff != "" {
				t.Errorf("gradients (-want +got):\n%s", diff)
			}
		})
	}
}

// A pull returns available weights immediately, and waits for later ones.
func TestExchangePull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newExchange(parameters{Steps: 30, Weights: values(1)}, 1)
		for _, steps := range []int{0, 30} {
			if got, err := x.pull(t.Context(), steps); err != nil || got.Steps != 30 {
				t.Errorf("pull(%d) = %d, %v; want 30", steps, got.Steps, err)
			}
		}
		pulled := make(chan parameters, 1)
		go func() {
			p, _ := x.pull(t.Context(), 32)
			pulled <- p // none if it failed
		}()
		for _, steps := range []int{31, 32} {
			synctest.Wait()
			if len(pulled) > 0 {
				t.Fatalf("pull(32) was answered before step %d", steps)
			}
			x.publish(parameters{Steps: steps, Weights: values(float64(steps))})
		}
		if diff := cmp.Diff(parameters{Steps: 32, Weights: values(32)}, <-pulled); diff != "" {
			t.Errorf("pulled (-want +got):\n%s", diff)
		}
	})
}

// A waiting call ends with its context.
func TestExchangeContext(t *testing.T) {
	t.Parallel()
	gone := errors.New("the caller is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	x := newExchange(parameters{}, 1)
	if _, err := x.pull(ctx, 1); !errors.Is(err, gone) {
		t.Errorf("pull: %v, want %v", err, gone)
	}
	if _, err := x.collect(ctx); !errors.Is(err, gone) {
		t.Errorf("collect: %v, want %v", err, gone)
	}
}

func TestExchangePushRefuses(t *testing.T) {
	x := newExchange(parameters{Steps: 7}, 2)
	if err := x.push(1, gradient{Steps: 7, Values: values(1)}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		rank int
		g    gradient
		want string
	}{
		{"the server", 0, gradient{Steps: 7, Values: values(1)}, "rank 0 is not a trainer: want 1 to 2"},
		{"an unknown rank", 3, gradient{Steps: 7, Values: values(1)}, "rank 3 is not a trainer: want 1 to 2"},
		{"too short", 2, gradient{Steps: 7}, "a gradient of 0 values, want 650"},
		{"late", 2, gradient{Steps: 6, Values: values(1)}, "a gradient of the weights after 6 steps, want 7"},
		{"early", 2, gradient{Steps: 8, Values: values(1)}, "a gradient of the weights after 8 steps, want 7"},
		{"twice", 1, gradient{Steps: 7, Values: values(1)}, "a second gradient of the weights after 7 steps"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := x.push(tc.rank, tc.g); err == nil || err.Error() != tc.want {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}
