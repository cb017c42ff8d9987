package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestDeb makes the Debian package twice, and installs, uses and removes it in Debian roots.
func TestDeb(t *testing.T) {
	testenv.InSoak(t)
	testenv.Root(t)
	if host := Host(); host.Arch != "amd64" && host.Arch != "arm64" {
		t.Skipf("there is no package for %s", host)
	}
	nfpm := exec.CommandContext(t.Context(), "go", "tool", "-modfile=internal/tools/nfpm/go.mod", "nfpm", "--version")
	nfpm.Dir = "../.."
	if out, err := nfpm.CombinedOutput(); err != nil {
		testenv.Missing(t, "needs nfpm, which go downloads: %v\n%s", err, out)
	}
	packages := []string{makeRelease(t, "deb"), makeRelease(t, "deb")}
	for i := range packages {
		packages[i] = onlyFile(t, packages[i], "elasticrun_1.2.3~dev4+gabcdef0_*.deb")
	}
	if read(t, "", packages[0]) != read(t, "", packages[1]) {
		t.Error("the same source, version and date make another package")
	}
	t.Run("install", func(t *testing.T) { testInstall(t, packages[0]) })
	t.Run("service", func(t *testing.T) { testService(t, packages[0]) })
}

// inRoot runs a script of testdata in mount and pid namespaces of its own, and returns its output.
func inRoot(t *testing.T, script string, args ...string) string {
	t.Helper()
	mark := testenv.Mark()
	path, err := filepath.Abs(filepath.Join("testdata", script))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(
		t.Context(),
		"unshare",
		append([]string{"--mount", "--pid", "--mount-proc", "--fork", "--kill-child", path}, args...)...)
	cmd.Env = append(cmd.Environ(), mark)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", script, err, out)
	}
	testenv.NothingLeft(t, mark)
	return string(out)
}

// The package trains beside Debian's torch, and leaves nothing when it is purged.
func testInstall(t *testing.T, deb string) {
	t.Helper()
	root := filepath.Join(filepath.Dir(filepath.Dir(testenv.Torch(t, "2.14"))), "roots", "forky")
	out := inRoot(t, "install-deb.sh", root, deb)
	if !strings.HasSuffix(out, "installed, removed and purged\n") || !strings.Contains(out, "elasticrun "+testVersion+" ") {
		t.Errorf("the output is\n%s", out)
	}
}

// Under systemd the service starts as the unit says, is restarted when it is stuck or crashes, is not restarted when a
// flag is wrong, and goes with the package.
func testService(t *testing.T, deb string) {
	t.Helper()
	if err := testenv.Programs(map[string]string{
		"systemd-nspawn": "systemd-container", "mmdebstrap": "mmdebstrap",
	}); err != nil {
		testenv.Missing(t, "%v", err)
	}
	script := exec.CommandContext(t.Context(), "../../scripts/systemd-root.sh")
	script.Stderr = os.Stderr
	root, err := script.Output()
	if err != nil {
		testenv.Missing(t, "needs a root with systemd: scripts/systemd-root.sh: %v", err)
	}
	want := `disabled
ActiveState=inactive
StatusText=store listening on [::]:29400
added 5
CapEff:	0000000000000000
NoNewPrivs:	1
Seccomp:	2
its own user
still the first
restarted
added 5
restarted
Result=success
refused: ExecMainStatus=2 NRestarts=0
inactive
end
`
	if diff := cmp.Diff(want, inRoot(t, "boot-service.sh", strings.TrimSpace(string(root)), deb)); diff != "" {
		t.Errorf("what happened under systemd (-want +got):\n%s", diff)
	}
}
