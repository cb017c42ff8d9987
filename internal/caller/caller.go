package caller

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The variables with which the caller asks; see the package comment.
const (
	PIDEnv    = "ELASTICRUN_CALLER_PID"
	ReportEnv = "ELASTICRUN_CALLER_REPORT"
)

// GoneError says that the caller ended before the launcher could follow it.
type GoneError struct {
	// PID is the caller's.
	PID int
}

// Error implements error.
func (e *GoneError) Error() string {
	return fmt.Sprintf("%s=%d: the program that started this launcher has ended: nothing was started", PIDEnv, e.PID)
}

// Follow makes the death of the caller send SIGTERM to this process, if the caller asked for that, and removes the
// request from the environment. The calling goroutine stays on its thread from then on. Follow returns a *GoneError if
// the parent is another process than the caller. On other systems than Linux it does nothing.
func Follow() error {
	text, set := os.LookupEnv(PIDEnv)
	if !set {
		return nil
	}
	if err := os.Unsetenv(PIDEnv); err != nil {
		return err
	}
	pid, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("%s=%q: must be the pid of the calling process", PIDEnv, text)
	}
	return follow(pid)
}

// ReportFile returns the path of the caller's report; empty if the caller wants none.
func ReportFile() string { return os.Getenv(ReportEnv) }

// Without returns a copy of env without PIDEnv and ReportEnv.
func Without(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == PIDEnv || name == ReportEnv
	})
}
