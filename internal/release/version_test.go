package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestVersionForms(t *testing.T) {
	for _, c := range []struct{ text, semantic, python, debian string }{
		{"v1.2.3", "1.2.3", "1.2.3", "1.2.3"},
		{"1.2.3", "1.2.3", "1.2.3", "1.2.3"},
		{"v1.2.3-rc.1", "1.2.3-rc.1", "1.2.3rc1", "1.2.3~rc1"},
		{"v1.2.3-rc1", "1.2.3-rc.1", "1.2.3rc1", "1.2.3~rc1"},
		{"v1.2.3-beta.2", "1.2.3-beta.2", "1.2.3b2", "1.2.3~beta2"},
		{"v1.2.3-alpha1", "1.2.3-alpha.1", "1.2.3a1", "1.2.3~alpha1"},
		{"1.2.3-dev.4+gabcdef0", "1.2.3-dev.4+gabcdef0", "1.2.3.dev4+gabcdef0", "1.2.3~dev4+gabcdef0"},
		{"1.2.3-dev.0", "1.2.3-dev.0", "1.2.3.dev0", "1.2.3~dev0"},
		{
			"1.2.3-dev.4+gabcdef0.dirty", "1.2.3-dev.4+gabcdef0.dirty", "1.2.3.dev4+gabcdef0.dirty",
			"1.2.3~dev4+gabcdef0.dirty",
		},
		{"1.2.3-rc.1.dev.4+gabcdef0", "1.2.3-rc.1.dev.4+gabcdef0", "1.2.3rc1.post4+gabcdef0", "1.2.3~rc1.4+gabcdef0"},
	} {
		v, err := ParseVersion(c.text)
		if err != nil {
			t.Error(err)
			continue
		}
		got := []string{v.String(), v.Python(), v.Debian()}
		if diff := cmp.Diff([]string{c.semantic, c.python, c.debian}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.text, diff)
		}
	}
}

func TestVersionRefused(t *testing.T) {
	for _, text := range []string{
		"", "v1.2", "v1.2.3-nightly", "release", "1.2.3-dev", "1.2.3-rc.1-dev.4", "1.2.3.dev.4", "v1.2.3+A", "v1.2.3\n", "dev",
		"1.2.3+", "99999999999999999999.0.0",
	} {
		if v, err := ParseVersion(text); err == nil || !strings.Contains(err.Error(), strconv.Quote(text)) {
			t.Errorf("%q: %v, %v", text, v, err)
		}
	}
}

// dpkg orders Debian's form like the releases.
func TestVersionOrder(t *testing.T) {
	dpkg, err := exec.LookPath("dpkg")
	if err != nil {
		t.Skip("needs dpkg")
	}
	var last string
	for _, text := range []string{
		"0.2.0-alpha.1", "0.2.0-dev.4+gabcdef0", "0.2.0-rc.1", "0.2.0-rc.1.dev.4+gabcdef0", "0.2.0-rc.2", "0.2.0",
		"0.2.1-dev.1+gabcdef0", "0.2.1",
	} {
		v, err := ParseVersion(text)
		if err != nil {
			t.Fatal(err)
		}
		if next := v.Debian(); last == "" ||
			exec.CommandContext(t.Context(), dpkg, "--compare-versions", last, "lt", next).Run() == nil {
			last = next
		} else {
			t.Errorf("%s does not come before %s", last, next)
		}
	}
}

func TestVersionOfSource(t *testing.T) {
	for _, c := range []struct {
		name string
		source
		want string
	}{
		{"no git", source{}, "0.2.0-dev.0"},
		{"no tag", source{commits: 412, commit: "abcdef0"}, "0.2.0-dev.412+gabcdef0"},
		{"no tag, changed", source{commits: 412, commit: "abcdef0", dirty: true}, "0.2.0-dev.412+gabcdef0.dirty"},
		{"shallow", source{commit: "abcdef0"}, "0.2.0-dev.0+gabcdef0"},
		{"the tag", source{tag: "v0.2.0", commit: "abcdef0"}, "0.2.0"},
		{"the tag, changed", source{tag: "v0.2.0", commit: "abcdef0", dirty: true}, "0.2.1-dev.0+gabcdef0.dirty"},
		{"after an older tag", source{tag: "v0.1.7", commits: 4, commit: "abcdef0"}, "0.2.0-dev.4+gabcdef0"},
		{"after the newest tag", source{tag: "v0.2.0", commits: 4, commit: "abcdef0"}, "0.2.1-dev.4+gabcdef0"},
		{"after a newer tag", source{tag: "v1.0.0", commits: 4, commit: "abcdef0"}, "1.0.1-dev.4+gabcdef0"},
		{"a prerelease", source{tag: "v0.2.0-rc.1", commit: "abcdef0"}, "0.2.0-rc.1"},
		{"after a prerelease", source{tag: "v0.2.0-rc.1", commits: 4, commit: "abcdef0"}, "0.2.0-rc.1.dev.4+gabcdef0"},
	} {
		got, err := versionOf(c.source, Version{minor: 2})
		if err != nil || got.String() != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.want)
		}
	}
	if _, err := versionOf(source{tag: "v2-final", commit: "abcdef0"}, Version{minor: 2}); err == nil ||
		!strings.Contains(err.Error(), `"v2-final"`) {
		t.Errorf("a tag that is no version: %v", err)
	}
}

// repository is a folder with a CHANGELOG.md. Its run runs git there.
type repository struct {
	t    *testing.T
	root string
}

func newRepository(t *testing.T) repository {
	t.Helper()
	r := repository{t: t, root: t.TempDir()}
	r.write("# Changelog\n\n## [0.3.0] - unreleased\n\n## [0.2.0] - 2026-11-22\n")
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE"} {
		if _, set := os.LookupEnv(name); set {
			t.Skipf("%s is set", name)
		}
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	return r
}

func (r repository) write(changelog string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.root, "CHANGELOG.md"), []byte(changelog), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r repository) run(args ...string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", args...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "GIT_COMMITTER_DATE=1700000001 +0000")
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// version returns the version without the commit, and the warning.
func (r repository) version() (version, warning string) {
	r.t.Helper()
	v, err := DescribeVersion(r.t.Context(), r.root, func(problem string) { warning += problem })
	if err != nil {
		r.t.Fatal(err)
	}
	version, _, _ = strings.Cut(v.String(), "+g")
	if strings.HasSuffix(v.String(), ".dirty") {
		version += " dirty"
	}
	return version, warning
}

func TestDescribeVersion(t *testing.T) {
	r := newRepository(t)
	want := func(version, warning string) {
		t.Helper()
		if got, warned := r.version(); got != version || !strings.Contains(warned, warning) || warning == "" && warned != "" {
			t.Errorf("version %q, warning %q; want %q, %q", got, warned, version, warning)
		}
	}
	date := func(want int64) {
		t.Helper()
		got, err := SourceDate(t.Context(), r.root, func(string) (string, bool) { return "", false })
		if err != nil || got.Unix() != want {
			t.Errorf("date %v, %v; want %v", got, err, time.Unix(want, 0))
		}
	}
	want("0.3.0-dev.0", "")
	if err := os.Chtimes(filepath.Join(r.root, "CHANGELOG.md"), time.Time{}, time.Unix(1_600_000_001, 0)); err != nil {
		t.Fatal(err)
	}
	date(1_600_000_001)
	r.run("init", "-q")
	want("0.3.0-dev.0", "the version has no commit: git describe: ")
	r.run("add", ".")
	r.run("commit", "-qm", "first")
	date(1_700_000_001)
	want("0.3.0-dev.1", "")
	r.run("tag", "other")
	want("0.3.0-dev.1", "")
	r.run("tag", "v0.2.0")
	want("0.2.0", "")
	r.run("commit", "-qm", "second", "--allow-empty")
	want("0.3.0-dev.1", "")
	r.write("## [0.3.0]\n")
	want("0.3.0-dev.1 dirty", "")
	r.run("commit", "-qam", "third")
	want("0.3.0-dev.2", "")
	shallow := repository{t: t, root: filepath.Join(t.TempDir(), "clone")}
	r.run("clone", "-q", "--depth=1", "--no-tags", "file://"+r.root, shallow.root)
	if got, warned := shallow.version(); got != "0.3.0-dev.0" || warned != "" {
		t.Errorf("shallow: %q, %q", got, warned)
	}
}

func TestNextVersionMissing(t *testing.T) {
	r := newRepository(t)
	for text, problem := range map[string]string{
		"# Changelog\n": "has no heading such as", "## [Unreleased]\n## [0.2.0]\n": `version "Unreleased": must be`,
	} {
		r.write(text)
		if _, err := DescribeVersion(t.Context(), r.root, nil); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
