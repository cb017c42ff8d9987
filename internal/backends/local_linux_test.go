package backends

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestSocketNameOfNetwork checks that agents share a socket only if their workers can reach each other, so not across
// two network namespaces.
func TestSocketNameOfNetwork(t *testing.T) {
	const helper = "SOCKET_NAME"
	if os.Getenv(helper) != "" {
		t.Log(helper + "=" + socketName("r"))
		return
	}
	testenv.Root(t) // to make a network namespace
	here := helper + "=" + socketName("r")
	for _, tt := range []struct {
		flags uintptr
		meets bool
	}{{0, true}, {syscall.CLONE_NEWNET, false}} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), helper+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: tt.flags}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), helper+"=run-") {
			t.Fatalf("%v\n%s", err, out)
		}
		if meets := strings.Contains(string(out), here); meets != tt.meets {
			t.Errorf("with flags %#x the agents meet: %v, want %v\n%s", tt.flags, meets, tt.meets, out)
		}
	}
}
