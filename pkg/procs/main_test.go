package procs

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// helperEnv makes the test binary a worker: its value names one of the helpers.
const helperEnv = "PROCS_TEST_HELPER"

// helpers are the programs that tests start, by name. Each gets the program's arguments.
var helpers = map[string]func(args []string){
	"suspend": suspendOnce,
	"trace":   trace,
}

func TestMain(m *testing.M) {
	if helper, ok := helpers[os.Getenv(helperEnv)]; ok {
		helper(os.Args[1:])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
