package liveness

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

func TestMain(m *testing.M) {
	testenv.Parallel(8) // the tests of real processes wait most of the time
	goleak.VerifyTestMain(m)
}
