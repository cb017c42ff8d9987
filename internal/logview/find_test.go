package logview

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// folder makes a run that is age minutes old.
func folder(t *testing.T, age int, path ...string) string {
	t.Helper()
	run := filepath.Join(path...)
	write(t, "x\n", run, "attempt_0", "0", "stdout.log")
	when := time.Now().Add(-time.Duration(age) * time.Minute)
	if err := os.Chtimes(run, when, when); err != nil {
		t.Fatal(err)
	}
	return run
}

func TestFind(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	base := filepath.Join(tmp, "logs")
	oldJob := folder(t, 9, base, "job_00000000")
	job := folder(t, 5, base, "job_11111111")
	other := folder(t, 7, base, "a_b_22222222")
	newest := folder(t, 1, base, "zzz_33333333")
	temporary := folder(t, 2, tmp, "torchelastic_x", "none_44444444")
	folder(t, 3, tmp, "torchelastic_y", "none_55555555")
	silent := filepath.Join(tmp, "torchelastic_z", "silent_66666666")
	write(t, "{}", silent, "attempt_0", "0", "error.json")
	if err := os.Mkdir(filepath.Join(base, "no_run"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, base, run, latest, want string }{
		{name: "newest", base: base, want: newest},
		{name: "linked", base: base, latest: "job_11111111", want: job},
		{name: "link to nothing", base: base, latest: "gone", want: newest},
		{name: "id", base: base, run: "job", latest: "zzz_33333333", want: job},
		{name: "id with a slash", base: base, run: "a/b", want: other},
		{name: "start of one name", base: base, run: "zz", want: newest},
		{name: "start of one folder's name", base: base, run: "job_0", want: oldJob},
		{name: "folder", run: oldJob, want: oldJob},
		{name: "the link itself", run: filepath.Join(base, "latest"), latest: "job_11111111", want: job},
		{name: "folder of runs", run: base, want: newest},
		{name: "temporary", want: temporary},
		{name: "temporary, by id", run: "none", want: temporary},
	} {
		t.Run(tt.name, func(t *testing.T) {
			link := filepath.Join(base, "latest")
			_ = os.Remove(link)
			if tt.latest != "" {
				if err := os.Symlink(tt.latest, link); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := Find(tt.base, tt.run, nil); got != tt.want || err != nil {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
	const onlyTemporary = "; a run without --log-dir, --redirects or --tee writes no log files"
	for _, tt := range []struct{ base, run, want string }{
		{"", "nosuch", onlyTemporary},
		{base, "jo", `"jo" begins the names of 2 runs: job_11111111, job_00000000; `},
		{base, "x", `no run "x" in ` + base},
		{base, "x", "--log-dir; the newest ones are zzz_33333333, job_11111111, a_b_22222222, job_00000000"},
		{filepath.Join(tmp, "nowhere"), "", "no run in " + filepath.Join(tmp, "nowhere")},
		{filepath.Join(base, "no_run"), "", "no run in "},
		{"", filepath.Join(base, "no_run"), "no run in " + filepath.Join(base, "no_run")},
		{os.DevNull, "", "/dev/null"},
	} {
		if got, err := Find(tt.base, tt.run, nil); err == nil || !strings.Contains(err.Error(), tt.want) ||
			!strings.Contains(err.Error(), "--log-dir") {
			t.Errorf("Find(%q, %q) = %q, %v; want an error with %q", tt.base, tt.run, got, err, tt.want)
		}
	}
}

// TestFindOnlyOwn checks that Find finds runs that other users placed in the temporary folder, or in a shared log
// folder, only by name.
func TestFindOnlyOwn(t *testing.T) {
	tmp, elsewhere := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	own := folder(t, 9, tmp, "torchelastic_own", "none_11111111")
	hidden := folder(t, 1, elsewhere, "torchelastic_far", "none_22222222")
	symlink := func(target string, path ...string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(path...)); err != nil {
			t.Fatal(err)
		}
	}
	symlink(filepath.Dir(hidden), tmp, "torchelastic_link")
	symlink(hidden, filepath.Dir(own), "none_33333333")
	base := filepath.Join(tmp, "logs")
	newest := folder(t, 5, base, "job_00000000")
	for _, tt := range []struct{ name, target string }{
		{"away", hidden}, {"up", "../torchelastic_own/none_11111111"}, {"to a link", "none_44444444"}, {"nowhere", ".."},
	} {
		link := filepath.Join(base, "latest")
		_ = os.Remove(link)
		symlink(tt.target, link)
		if tt.name == "to a link" {
			symlink(hidden, base, tt.target)
		}
		if got, err := Find(base, "", nil); got != newest || err != nil {
			t.Errorf("latest leads %s: got %q, %v; want %q", tt.name, got, err, newest)
		}
	}
	find := func(run string) {
		t.Helper()
		if got, err := Find("", run, nil); got != own || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, own)
		}
	}
	find("")
	find("none")
	if os.Geteuid() != 0 {
		return
	}
	theirs := folder(t, 0, tmp, "torchelastic_theirs", "none_55555555")
	if err := os.Chown(filepath.Dir(theirs), 4711, 4711); err != nil {
		t.Fatal(err)
	}
	find("")
	find("none")
	if got, err := Find("", theirs, nil); got != theirs || err != nil {
		t.Errorf("named: got %q, %v", got, err)
	}
}

// TestFindKnown checks that Find without a log folder finds the runs in known folders that still belong to this user.
func TestFindKnown(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	base := t.TempDir()
	older, newer := folder(t, 9, base, "job_11111111"), folder(t, 5, base, "other_22222222")
	link, gone := filepath.Join(base, "job_33333333"), filepath.Join(base, "job_44444444")
	if err := os.Symlink(newer, link); err != nil {
		t.Fatal(err)
	}
	known := []string{older, newer, link, gone}
	for run, want := range map[string]string{"job": older, "jo": older, "other": newer, "": newer} {
		if got, err := Find("", run, known); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", run, got, err, want)
		}
	}
	if diff := cmp.Diff([]string{newer, older}, List("", known)); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{newer, older}, List(base, nil)); diff != "" {
		t.Errorf("list of a folder (-want +got):\n%s", diff)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(newer, 4711, 4711); err != nil {
		t.Fatal(err)
	}
	if got, err := Find("", "other", known); err == nil {
		t.Errorf("of another user: %q", got)
	}
}

// A run that has just begun has no attempt yet, but is active.
func TestFindOneThatBegins(t *testing.T) {
	base := t.TempDir()
	d, err := workerlog.OpenLogDir(base, "job")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Find(base, "job", nil); got != d.Path() || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if err := d.Cleanup(); err != nil {
		t.Fatal(err)
	}
	if got, err := Find(base, "job", nil); err == nil {
		t.Errorf("it has ended without a log, and was found: %q", got)
	}
}
