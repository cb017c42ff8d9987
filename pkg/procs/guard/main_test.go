package guard

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// helperEnv makes the test binary a guard and its agent.
const helperEnv = "GUARD_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "guarded" {
		runGuarded(os.Args[1:])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
