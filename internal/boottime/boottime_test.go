package boottime

import (
	"testing"
	"time"
)

func TestNow(t *testing.T) {
	began, first := time.Now(), Now()
	<-time.After(20 * time.Millisecond)
	second, took := Now(), time.Since(began)
	if passed := second - first; passed < 20*time.Millisecond || passed > took {
		t.Errorf("%v passed, want 20ms to %v", passed, took)
	}
}
