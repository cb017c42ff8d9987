package main

import (
	"math"
	"testing"
)

// The gradient matches the change of the loss after a small change of a weight.
func TestGradient(t *testing.T) {
	t.Parallel()
	images := testDigits(t).training.share(0, 100)
	m := newModel()
	m.step([][]float64{images.gradient(m.Weights)}, len(images.images)) // start where weights differ
	gradient := images.gradient(m.Weights)
	const little = 1e-5
	for i := 0; i < weightCount; i += 7 {
		at := func(d float64) float64 {
			weights := append([]float64(nil), m.Weights...)
			weights[i] += d
			return images.loss(weights)
		}
		want := (at(little) - at(-little)) / (2 * little)
		if got := gradient[i] / float64(len(images.images)); math.Abs(got-want) > 1e-8 {
			t.Errorf("weight %d: gradient %g, but the loss changes by %g", i, got, want)
		}
	}
}

// Large scores must not become infinite.
func TestProbabilities(t *testing.T) {
	t.Parallel()
	weights, image := make([]float64, weightCount), make([]float64, inputs)
	image[pixels] = 1
	weights[3*inputs+pixels] = 1e6
	p := probabilities(weights, image)
	for class, got := range p {
		want := 0.0
		if class == 3 {
			want = 1
		}
		if got != want {
			t.Errorf("class %d: %g, want %g", class, got, want)
		}
	}
}

// The next step does not change weights that a caller still has.
func TestStepLeavesOldWeights(t *testing.T) {
	t.Parallel()
	images := testDigits(t).training.share(0, 100)
	m := newModel()
	before := m.Weights
	m.step([][]float64{images.gradient(m.Weights)}, len(images.images))
	for i, w := range before {
		if w != 0 {
			t.Fatalf("weight %d of step 0 is %g, want 0", i, w)
		}
	}
	if m.Steps != 1 || m.Weights[pixels] == 0 {
		t.Errorf("step %d with bias %g, want 1 and another than 0", m.Steps, m.Weights[pixels])
	}
}
