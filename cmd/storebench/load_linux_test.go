package main

import (
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	var h histogram
	for d := range 1000 {
		h.record(time.Duration(d+1) * 10 * time.Microsecond)
	}
	for _, tc := range []struct {
		q    float64
		want time.Duration
	}{{0, 10 * time.Microsecond}, {0.5, 5010 * time.Microsecond}, {0.99, 9910 * time.Microsecond}} {
		if got := h.quantile(tc.q); got > tc.want || got < tc.want-tc.want/64 {
			t.Errorf("quantile %g = %v, want at most 1/64 below %v", tc.q, got, tc.want)
		}
	}
	if got := h.total(); got != 1000 {
		t.Errorf("total %d, want 1000", got)
	}
}
