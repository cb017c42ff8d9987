package release

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestDeb makes the Debian package twice, and installs, uses and removes it in a Debian root with torch.
func TestDeb(t *testing.T) {
	if !testenv.Whole(t) {
		t.Skip("runs in make soak, because nfpm takes long to build")
	}
	testenv.Root(t)
	if host := Host(); host.Arch != "amd64" && host.Arch != "arm64" {
		t.Skipf("there is no package for %s", host)
	}
	root := filepath.Join(filepath.Dir(filepath.Dir(testenv.Torch(t, "2.14"))), "roots", "forky")
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
	mark := testenv.Mark()
	script, err := filepath.Abs("testdata/install-deb.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--fork", "--kill-child", script, root, packages[0])
	cmd.Env = append(cmd.Environ(), mark)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.HasSuffix(out, []byte("installed, removed and purged\n")) ||
		!strings.Contains(string(out), "elasticrun "+testVersion+" ") {
		t.Errorf("%v\n%s", err, out)
	}
	testenv.NothingLeft(t, mark)
}
