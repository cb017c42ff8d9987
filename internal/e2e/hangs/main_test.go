package hangs

import (
	"os"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

func TestMain(m *testing.M) {
	testenv.Parallel(8) // the jobs wait most of the time
	testenv.ResetSignals()
	os.Exit(m.Run())
}
