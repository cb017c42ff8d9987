package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

const unit = "../../examples/systemd/elasticrun-store.service"

// The flags in the unit, in its comments too, are flags of elasticrun store.
func TestUnitFlags(t *testing.T) {
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, s := range config.Subcommands() {
		if s.Name != "store" {
			continue
		}
		for _, f := range s.Flags() {
			known = append(known, "--"+f.Name)
		}
	}
	used := regexp.MustCompile(`--[a-z-]+`).FindAllString(string(text), -1)
	if len(used) < 3 {
		t.Errorf("found only %v", used)
	}
	for _, flag := range used {
		if !slices.Contains(known, flag) {
			t.Errorf("the unit names %s, which elasticrun store does not have", flag)
		}
	}
}

// systemd-analyze finds no mistake in the unit, and few privileges.
func TestUnitBySystemd(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		testenv.Missing(t, "needs systemd-analyze (apt-get install systemd): %v", err)
	}
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	// The package's binary and manual page are not installed here.
	edited := strings.Replace(string(text), "ExecStart=/usr/bin/elasticrun ", "ExecStart="+testenv.Binary(t)+" ", 1)
	edited = strings.Replace(edited, "Documentation=", "#", 1)
	path := filepath.Join(t.TempDir(), filepath.Base(unit))
	if err := os.WriteFile(path, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", path).CombinedOutput(); err != nil ||
		len(out) > 0 {
		t.Errorf("verify: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", path).CombinedOutput()
	level := regexp.MustCompile(`Overall exposure level for \S+: ([\d.]+)`).FindSubmatch(out)
	if level == nil {
		testenv.Missing(t, "needs systemd-analyze security --offline (systemd 250): %v\n%s", err, out)
	}
	if score, err := strconv.ParseFloat(string(level[1]), 64); err != nil || score > 2 {
		t.Errorf("exposure %s of 10 (%v), want at most 2:\n%s", level[1], err, out)
	}
}
