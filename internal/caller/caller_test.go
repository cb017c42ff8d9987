package caller

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWithout(t *testing.T) {
	env := []string{"A=1", PIDEnv + "=12", "B=2", ReportEnv + "=/r.json", ReportEnv + "S=3"}
	if diff := cmp.Diff([]string{"A=1", "B=2", ReportEnv + "S=3"}, Without(env)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(env) != 5 || env[1] != PIDEnv+"=12" {
		t.Errorf("the argument was changed: %q", env)
	}
}

// TestFollowRefuses calls Follow without a request and with requests that it cannot grant. TestPythonLaunch in package
// release lets a caller die.
func TestFollowRefuses(t *testing.T) {
	if err := Follow(); err != nil {
		t.Errorf("without a request: %v", err)
	}
	t.Setenv(PIDEnv, "me")
	if err := Follow(); err == nil || !strings.Contains(err.Error(), `ELASTICRUN_CALLER_PID="me"`) {
		t.Errorf("not a number: %v", err)
	}
	if _, set := os.LookupEnv(PIDEnv); set {
		t.Error("the request is still in the environment")
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can signal the end of a parent")
	}
	var gone *GoneError
	if err := follow(os.Getpid()); !errors.As(err, &gone) || gone.PID != os.Getpid() {
		t.Errorf("another parent: %v", err)
	}
}
