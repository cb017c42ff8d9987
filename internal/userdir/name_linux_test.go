package userdir

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// nameEnv makes the test binary print the names of two users.
const nameEnv = "ELASTICRUN_TEST_USERDIR_NAME"

// TestNameInNamespace checks that a process keeps its user's folder when it becomes root of a user namespace.
func TestNameInNamespace(t *testing.T) {
	if os.Getenv(nameEnv) != "" {
		os.Stdout.WriteString(Name(os.Geteuid()) + " " + Name(7) + "\n")
		return
	}
	const inside = 4242
	ids := func(id int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: inside, HostID: id, Size: 1}}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNameInNamespace$")
	cmd.Env = append(os.Environ(), nameEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids(os.Getuid()), GidMappings: ids(os.Getgid()),
	}
	out, err := cmd.Output()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		testenv.Missing(t, "needs a user namespace: %v", err)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got, _, _ := strings.Cut(string(out), "\n"); got != Name(os.Geteuid())+" elasticrun-7" {
		t.Errorf("in a user namespace the names are %q; outside this user's is %s", got, Name(os.Geteuid()))
	}
}
