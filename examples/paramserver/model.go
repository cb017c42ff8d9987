package main

import "math"

const (
	learningRate = 0.5
	momentum     = 0.9
	weightCount  = classes * inputs
)

// model is the state of the training: softmax regression with gradient descent and momentum. The same gradients change
// the same model in the same way, to the last bit.
type model struct {
	Steps    int       `json:"steps"`    // steps done
	Weights  []float64 `json:"weights"`  // inputs values per class, class by class
	Velocity []float64 `json:"velocity"` // last change of each weight
}

func newModel() model {
	return model{Weights: make([]float64, weightCount), Velocity: make([]float64, weightCount)}
}

// step updates the weights by the sum of gradients, which cover that many images. It sums in the given order. The new
// weights are a new slice, because a trainer can still be receiving the old ones.
func (m *model) step(gradients [][]float64, images int) {
	rate := learningRate / float64(images)
	weights := make([]float64, weightCount)
	for i := range weights {
		sum := 0.0
		for _, gradient := range gradients {
			sum += gradient[i]
		}
		m.Velocity[i] = momentum*m.Velocity[i] - rate*sum
		weights[i] = m.Weights[i] + m.Velocity[i]
	}
	m.Weights = weights
	m.Steps++
}

// gradient returns the gradient of the cross entropy at these weights, summed over the images.
func (s shard) gradient(weights []float64) []float64 {
	sum := make([]float64, weightCount)
	for i, image := range s.images {
		errs := probabilities(weights, image)
		errs[s.labels[i]]--
		for class, e := range errs {
			row := sum[class*inputs:]
			for j, x := range image {
				row[j] += e * x
			}
		}
	}
	return sum
}

// loss returns the mean cross entropy.
func (s shard) loss(weights []float64) float64 {
	sum := 0.0
	for i, image := range s.images {
		sum -= math.Log(probabilities(weights, image)[s.labels[i]])
	}
	return sum / float64(len(s.images))
}

// accuracy returns the share of images that are classified correctly, from 0 to 1.
func (s shard) accuracy(weights []float64) float64 {
	correct := 0
	for i, image := range s.images {
		best, p := 0, probabilities(weights, image)
		for class := range p {
			if p[class] > p[best] {
				best = class
			}
		}
		if best == s.labels[i] {
			correct++
		}
	}
	return float64(correct) / float64(len(s.images))
}

// probabilities returns the probability of each class for an image.
func probabilities(weights, image []float64) [classes]float64 {
	var p [classes]float64
	top := math.Inf(-1)
	for class := range p {
		for j, w := range weights[class*inputs : (class+1)*inputs] {
			p[class] += w * image[j]
		}
		top = max(top, p[class])
	}
	total := 0.0
	for class := range p {
		p[class] = math.Exp(p[class] - top)
		total += p[class]
	}
	for class := range p {
		p[class] /= total
	}
	return p
}
