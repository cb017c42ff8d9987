package elastic

import (
	"fmt"
	"testing"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// TestEndpointsOfAnotherJob checks that an agent waits for further endpoints unless another job's store is all that
// listens.
func TestEndpointsOfAnotherJob(t *testing.T) {
	other := fmt.Errorf("dial: %w", &coord.RefusedError{Reason: coord.ReasonRunID})
	nobody := &coord.DialError{Obstacle: coord.ObstacleRefused}
	silent := &coord.DialError{Obstacle: coord.ObstacleTimeout}
	for _, tt := range []struct {
		tried []error
		want  bool
	}{
		{[]error{other, nobody, other}, true},
		{[]error{nobody, other}, true},
		{[]error{other, silent}, false},
		{[]error{nobody, nobody}, false},
		{[]error{other, fmt.Errorf("%w: no such host", rdzv.ErrConnection)}, false},
	} {
		if got := permanent(&endpointsError{tt.tried}); got != tt.want {
			t.Errorf("%v: permanent %v, want %v", tt.tried, got, tt.want)
		}
	}
}
