package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

const testVersion = "1.2.3-dev.4+gabcdef0"

// TestRelease runs all checks on one release for this machine, because building a release takes time. TestImage and
// TestDeb make the other kinds.
func TestRelease(t *testing.T) {
	dist := makeRelease(t, "archive", "wheel")
	t.Run("sums", func(t *testing.T) { testSums(t, dist) })
	t.Run("archive", func(t *testing.T) { testArchive(t, dist) })
	e := newEnvironment(t)
	t.Run("wheel", func(t *testing.T) { testWheel(e.of(t), dist) }) // leaves the environment as it was
	t.Run("examples", func(t *testing.T) { testExamples(e.of(t), dist) })
	t.Run("again", func(t *testing.T) {
		testenv.InSoak(t)
		if diff := cmp.Diff(read(t, dist, "SHA256SUMS"), read(t, makeRelease(t, "archive", "wheel"), "SHA256SUMS")); diff != "" {
			t.Errorf("the same source, version and date make other files (-first +second):\n%s", diff)
		}
	})
}

// makeRelease runs command release for some kinds of files, and returns the folder of its output. The command is built
// without the race detector, which would make compression several times slower; it starts no goroutines.
func makeRelease(t *testing.T, kinds ...string) string {
	t.Helper()
	program, err := testenv.Build("cmd/release")
	if err != nil {
		t.Fatal(err)
	}
	dist := t.TempDir()
	args := append([]string{"-host", "-version", testVersion, "-out", dist}, kinds...)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000001")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("release: %v\n%s", err, out)
	}
	return dist
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// onlyFile returns the path of the only file that matches.
func onlyFile(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %s: %v, %v", pattern, dir, found, err)
	}
	return found[0]
}

func testSums(t *testing.T, dist string) {
	t.Helper()
	want := ""
	for _, pattern := range []string{"*.tar.gz", "*.whl"} { // a dash is before a dot
		path := onlyFile(t, dist, pattern)
		want += fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(read(t, dist, filepath.Base(path)))), filepath.Base(path))
	}
	if diff := cmp.Diff(want, read(t, dist, "SHA256SUMS")); diff != "" {
		t.Errorf("SHA256SUMS (-want +got):\n%s", diff)
	}
}

func testArchive(t *testing.T, dist string) {
	t.Helper()
	zipped, err := gzip.NewReader(strings.NewReader(read(t, dist, filepath.Base(onlyFile(t, dist, "*.tar.gz")))))
	if err != nil {
		t.Fatal(err)
	}
	folder := "elasticrun-" + testVersion + "-" + Host().String() + "/"
	var names []string
	for archive := tar.NewReader(zipped); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name, below := strings.CutPrefix(h.Name, folder)
		names = append(names, name)
		want := int64(0o644)
		switch name {
		case "elasticrun":
			want = 0o755
			tryBinary(t, archive)
		case "CHANGELOG.md", "LICENSE", "README.md":
			if data, err := io.ReadAll(archive); err != nil || string(data) != read(t, "../..", name) {
				t.Errorf("%s is not the repository's (%v)", name, err)
			}
		}
		if !below || h.Mode != want || h.Uid != 0 || h.Uname != "root" || h.ModTime.Unix() != 1_700_000_001 {
			t.Errorf("%s: mode %o, owner %d %s, date %v", h.Name, h.Mode, h.Uid, h.Uname, h.ModTime)
		}
	}
	want := []string{
		"CHANGELOG.md", "LICENSE", "README.md",
		"completions/_elasticrun", "completions/elasticrun.bash", "completions/elasticrun.fish", "completions/elasticrun.ps1", "completions/elasticrun.tcsh", "elasticrun",
	}
	pages := []string{"man/man1/elasticrun.1"}
	for _, s := range config.Subcommands() {
		if len(s.Flags()) > 0 {
			pages = append(pages, "man/man1/elasticrun-"+s.Name+".1")
		}
	}
	slices.Sort(pages)
	want = append(append(want, pages...), "systemd/elasticrun-store.service")
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// tryBinary runs the binary from an archive.
func tryBinary(t *testing.T, from io.Reader) {
	t.Helper()
	var binary bytes.Buffer
	if _, err := io.Copy(&binary, from); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "elasticrun")
	if err := os.WriteFile(path, binary.Bytes(), 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, "--version").Output()
	if err != nil || !strings.HasPrefix(string(out), "elasticrun "+testVersion+" ") {
		t.Errorf("--version: %v, %q", err, out)
	}
}

// Every platform of a release has wheel tags for that platform.
func TestWheelTags(t *testing.T) {
	for _, target := range Targets() {
		tags, err := target.wheelTags()
		if err != nil || len(tags) == 0 {
			t.Errorf("%s: %v, %v", target, tags, err)
		}
	}
	if _, err := (Target{"plan9", "mips"}).wheelTags(); err == nil {
		t.Error("plan9 has tags")
	}
	w := wheel{version: "1.2.3", tags: []string{"a", "b"}}
	if w.name() != "elasticrun-1.2.3-py3-none-a.b.whl" {
		t.Errorf("name %s", w.name())
	}
}

// The output does not depend on the order in which files were collected, and dates before the first one of zip are
// accepted.
func TestOrder(t *testing.T) {
	files := []file{{name: "b", data: []byte("2")}, {name: "a", data: []byte("1"), executable: true}}
	turned := []file{files[1], files[0]}
	var one, other, early, first bytes.Buffer
	if err := errors.Join(writeArchive(&one, "x", files, time.Unix(1, 5)), writeArchive(&other, "x", turned, time.Unix(1, 0)),
		wheel{version: "1"}.write(&early, time.Unix(0, 0)), wheel{version: "1"}.write(&first, time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), other.Bytes()) || !bytes.Equal(early.Bytes(), first.Bytes()) {
		t.Error("the bytes depend on order, or on parts of a second")
	}
}
