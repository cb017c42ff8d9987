package transport

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// roleVariable makes the test binary one end of a watch; see cuthost_linux_test.go.
const roleVariable = "TRANSPORT_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(runRole(role, os.Args[1]))
	}
	goleak.VerifyTestMain(m)
}
