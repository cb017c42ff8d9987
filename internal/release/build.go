package release

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/elasticrun/elasticrun/internal/config"
)

// Target is a platform in Go's names.
type Target struct{ OS, Arch string }

// Targets returns the platforms of a release.
func Targets() []Target {
	return []Target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}
}

// Host returns the platform of this machine.
func Host() Target { return Target{runtime.GOOS, runtime.GOARCH} }

// String returns OS-ARCH.
func (t Target) String() string { return t.OS + "-" + t.Arch }

// wheelTags returns the platform tags of the wheel. The binary is static, so it needs neither glibc nor musl. Linux
// with glibc also has the old form of its tag, for pip before 20.3. The macOS versions are the oldest in wheel tags; Go
// itself needs macOS 12.
func (t Target) wheelTags() ([]string, error) {
	switch t {
	case Target{"linux", "amd64"}:
		return []string{"manylinux2014_x86_64", "manylinux_2_17_x86_64", "musllinux_1_1_x86_64"}, nil
	case Target{"linux", "arm64"}:
		return []string{"manylinux2014_aarch64", "manylinux_2_17_aarch64", "musllinux_1_1_aarch64"}, nil
	case Target{"darwin", "amd64"}:
		return []string{"macosx_10_12_x86_64"}, nil
	case Target{"darwin", "arm64"}:
		return []string{"macosx_11_0_arm64"}, nil
	}
	return nil, fmt.Errorf("make a wheel for %s: there is no such platform in the release", t)
}

// build builds the binary for a platform. The result has no paths of this machine and no version control data. It does
// not depend on cgo, or on GOFLAGS and GOEXPERIMENT of the environment; values that go env -w has stored still count.
func build(ctx context.Context, root string, version Version, t Target) ([]byte, error) {
	dir, err := os.MkdirTemp("", "elasticrun-release-")
	if err != nil {
		return nil, fmt.Errorf("build for %s: %w", t, err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	path := filepath.Join(dir, "elasticrun")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X main.version="+version.String(), "-o", path, "./cmd/elasticrun")
	cmd.Dir = root
	cmd.Env = append(
		os.Environ(),
		"CGO_ENABLED=0",
		"GOOS="+t.OS,
		"GOARCH="+t.Arch,
		"GOFLAGS=",
		"GOEXPERIMENT=",
		"GOAMD64=v1",
		"GOARM64=v8.0",
	)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build for %s: %w\n%s", t, err, out)
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("build for %s: %w", t, err)
	}
	return binary, nil
}

// completionName returns the name of a shell's completion, as the shell expects it.
func completionName(shell string) string {
	switch shell {
	case "zsh":
		return "_elasticrun"
	case "powershell":
		return "elasticrun.ps1"
	}
	return "elasticrun." + shell
}

// completions runs a binary for this machine to get the completion scripts of all shells.
func completions(ctx context.Context, binary []byte) ([]file, error) {
	dir, err := os.MkdirTemp("", "elasticrun-release-")
	if err != nil {
		return nil, fmt.Errorf("make the completions: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	path := filepath.Join(dir, "elasticrun")
	if err := os.WriteFile(path, binary, 0o700); err != nil {
		return nil, fmt.Errorf("make the completions: %w", err)
	}
	var files []file
	for _, shell := range config.Shells() {
		script, err := exec.CommandContext(ctx, path, "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("make the completion for %s: %w", shell, err)
		}
		files = append(files, file{name: completionName(shell), data: script})
	}
	return files, nil
}
