package workerlog

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLogDirLayout(t *testing.T) {
	base := filepath.Join(t.TempDir(), "logs", "deep")
	d := openLogDir(t, base, "job")
	if !regexp.MustCompile(`^job_[a-z0-9_]{8}$`).MatchString(filepath.Base(d.Path())) || filepath.Dir(d.Path()) != base {
		t.Errorf("run folder %q in %q", d.Path(), base)
	}
	for _, tt := range []struct {
		restarts, round int
		change          bool
		want            string
	}{
		{0, 0, false, "attempt_0"},
		{0, 1, true, "attempt_0.r1"},
		{1, 2, false, "attempt_1"},
		{1, 3, true, "attempt_1.r3"},
		{0, 0, false, "attempt_0.2"}, // in another store: the logs of the first are not truncated
		{0, 1, true, "attempt_0.r1.2"},
		{0, 0, false, "attempt_0.3"},
	} {
		attempt, err := d.Attempt(tt.restarts, tt.round, tt.change)
		if err != nil {
			t.Fatal(err)
		}
		files, err := attempt.Files(12)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(d.Path(), tt.want)
		want := LogFiles{
			Stdout:         filepath.Join(dir, "12/stdout.log"),
			Stderr:         filepath.Join(dir, "12/stderr.log"),
			Error:          filepath.Join(dir, "12/error.json"),
			FilteredStdout: filepath.Join(dir, "filtered_stdout.log"),
			FilteredStderr: filepath.Join(dir, "filtered_stderr.log"),
			Timeline:       filepath.Join(dir, "timeline"),
			TracePrefix:    filepath.Join(dir, "nccl_trace_rank_"),
		}
		if diff := cmp.Diff(want, files); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		writeFile(t, files.Stdout)
	}
	if err := d.Cleanup(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(d.Path(), "attempt_0/12/stdout.log")); err != nil {
		t.Error("cleanup removed a log:", err)
	}
}

func TestLogDirKeepsEarlierRuns(t *testing.T) {
	base := t.TempDir()
	one, two := openLogDir(t, base, "job"), openLogDir(t, base, "job")
	if one.Path() == two.Path() {
		t.Errorf("two runs share %q", one.Path())
	}
}

func TestLogDirLatest(t *testing.T) {
	base := t.TempDir()
	link := filepath.Join(base, "latest")
	for range 2 { // the second replaces the first
		d := openLogDir(t, base, "job")
		if err := d.LinkLatest(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(link); err != nil || got != filepath.Base(d.Path()) {
			t.Errorf("link to %q, %v; want one to %q", got, err, filepath.Base(d.Path()))
		}
	}
	if left := entries(t, base); len(left) != 3 { // two runs and the link
		t.Errorf("the folder holds %q", left)
	}
}

func TestLogDirLatestLeavesOthersAlone(t *testing.T) {
	for name, occupy := range map[string]func(t *testing.T, path string){
		"file": writeFile,
		"folder": func(t *testing.T, path string) {
			t.Helper()
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			link := filepath.Join(base, "latest")
			occupy(t, link)
			before, err := os.Lstat(link)
			if err != nil {
				t.Fatal(err)
			}
			d := openLogDir(t, base, "job")
			if err := d.LinkLatest(); err == nil || !strings.Contains(err.Error(), link) {
				t.Errorf("%v: want an error that names %s", err, link)
			}
			if after, err := os.Lstat(link); err != nil || !os.SameFile(before, after) {
				t.Errorf("it was replaced (%v)", err)
			}
		})
	}
	for _, base := range []string{"", os.DevNull} { // nobody looks for a link there
		tmp := t.TempDir()
		t.Setenv("TMPDIR", tmp)
		d := openLogDir(t, base, "job")
		if err := d.LinkLatest(); err != nil {
			t.Error(err)
		}
		if err := d.Cleanup(); err != nil || len(entries(t, tmp)) > 0 {
			t.Errorf("left over: %q (%v)", entries(t, tmp), err)
		}
	}
}

// Other processes see whether a run is active, and when it ends.
func TestRunLasts(t *testing.T) {
	d := openLogDir(t, t.TempDir(), "job")
	for range 2 { // to ask changes nothing
		if lasts, err := RunActive(d.Path()); !lasts || err != nil {
			t.Errorf("RunActive = %v, %v", lasts, err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- AwaitRunEnd(d.Path()) }()
	if err := d.Cleanup(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if lasts, err := RunActive(d.Path()); lasts || err != nil {
		t.Errorf("RunActive = %v, %v after the end", lasts, err)
	}
}

func TestRunFolderName(t *testing.T) {
	for _, tt := range []struct {
		name, id string
		want     bool
	}{
		{"job_abcd_012", "job", true},
		{"job_abcd_012", "jo", false},
		{"job_abcd_0123", "job", false},
		{"job_ABCDEFGH", "job", false},
		{"a_b_abcd_012", "a/b", true},
	} {
		if got := IsRunFolder(tt.name, tt.id); got != tt.want {
			t.Errorf("IsRunFolder(%q, %q) = %v", tt.name, tt.id, got)
		}
	}
}

func TestLogDirRunIDStaysInside(t *testing.T) {
	plain := regexp.MustCompile(`^[^\pC/]{9,255}$`)
	for _, id := range []string{"a/b", "../../up", "..", ".", "", "/abs", "new\nline", "nul\x00", "bad\xff", strings.Repeat("long/", 100), strings.Repeat("ü", 150)} {
		base := t.TempDir()
		d := openLogDir(t, base, id)
		if filepath.Dir(d.Path()) != base || !plain.MatchString(filepath.Base(d.Path())) {
			t.Errorf("run id %q: folder %q is not a plain name in %q", id, d.Path(), base)
		}
	}
}

func TestLogDirRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file)
	for _, base := range []string{file, filepath.Join(file, "below")} {
		if _, err := OpenLogDir(base, "job"); err == nil || !strings.Contains(err.Error(), base) ||
			!strings.Contains(err.Error(), "--log-dir") {
			t.Errorf("OpenLogDir(%q): %v, want an error that names it and the flag", base, err)
		}
	}
}

func TestLogDirUnwritable(t *testing.T) {
	locked := "/proc" // where not even root can make a folder
	if os.Geteuid() != 0 {
		locked = t.TempDir()
		if err := os.Chmod(locked, 0o500); err != nil {
			t.Fatal(err)
		}
	}
	for _, base := range []string{locked, filepath.Join(locked, "logs")} {
		if _, err := OpenLogDir(base, "job"); err == nil || !strings.Contains(err.Error(), base) ||
			!strings.Contains(err.Error(), "--log-dir") {
			t.Errorf("OpenLogDir(%q): %v, want an error that names it and the flag", base, err)
		}
	}
}

func TestLogDirDevNull(t *testing.T) {
	d := openLogDir(t, os.DevNull, "job")
	attempt, err := d.Attempt(0, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	files, err := attempt.Files(0)
	if err != nil || files != (LogFiles{}) || d.Path() != "" {
		t.Errorf("files %+v, path %q, %v: want nothing", files, d.Path(), err)
	}
	if err := d.Cleanup(); err != nil {
		t.Error(err)
	}
}

func TestLogDirTemporary(t *testing.T) {
	for _, tt := range []struct {
		name string
		fill func(t *testing.T, files LogFiles)
		kept bool
	}{
		{"empty", func(*testing.T, LogFiles) {}, false},
		{"error file", func(t *testing.T, files LogFiles) { t.Helper(); writeFile(t, files.Error) }, true},
		{"link", func(t *testing.T, files LogFiles) {
			t.Helper()
			if err := os.Symlink("/", files.Stdout); err != nil {
				t.Fatal(err)
			}
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			d := openLogDir(t, "", "job")
			base := filepath.Dir(d.Path())
			if filepath.Dir(base) != tmp || !strings.HasPrefix(filepath.Base(base), "torchelastic_") {
				t.Errorf("folder %q is not %s/torchelastic_*", base, tmp)
			}
			for _, dir := range []string{base, d.Path()} {
				if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("%s: mode %v, %v: want 0700", dir, info.Mode(), err)
				}
			}
			attempt, err := d.Attempt(0, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			files, err := attempt.Files(0)
			if err != nil {
				t.Fatal(err)
			}
			tt.fill(t, files)
			for range 2 { // cleaning up twice does no harm
				if err := d.Cleanup(); err != nil {
					t.Error(err)
				}
			}
			if left := entries(t, tmp); (len(left) > 0) != tt.kept {
				t.Errorf("after cleanup: %q", left)
			}
		})
	}
}

func openLogDir(t *testing.T, base, runID string) *LogDir {
	t.Helper()
	d, err := OpenLogDir(base, runID)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func writeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func entries(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if path != dir {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
