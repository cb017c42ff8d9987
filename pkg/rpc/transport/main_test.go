package transport

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// roleVariable makes the test's program one end of a watch, of which cuthost_linux_test.go tells.
const roleVariable = "TRANSPORT_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role, os.Args[1]))
	}
	goleak.VerifyTestMain(m)
}
