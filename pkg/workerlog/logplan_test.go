package workerlog

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestPlanLogDir compares the plan with what OpenLogDir then creates.
func TestPlanLogDir(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	file := filepath.Join(temp, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, base := range []string{"", os.DevNull, filepath.Join(temp, "a", "b"), temp, file, filepath.Join(file, "below")} {
		before, err := os.ReadDir(temp)
		if err != nil {
			t.Fatal(err)
		}
		plan, planErr := PlanLogDir(base, "job/7")
		if after, err := os.ReadDir(temp); err != nil || len(after) != len(before) {
			t.Errorf("%q: the plan has made something: %v, %v", base, after, err)
		}
		d, err := OpenLogDir(base, "job/7")
		if (err == nil) != (planErr == nil) {
			t.Errorf("%q: planned %v, made %v", base, planErr, err)
		}
		if err != nil {
			continue
		}
		attempt, err := d.Attempt(0, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		files, err := attempt.Files(3)
		if err != nil {
			t.Fatal(err)
		}
		// os.MkdirTemp makes names of one to ten digits.
		want := regexp.MustCompile(
			"^" + regexp.MustCompile(regexp.QuoteMeta(randomMark)).
				ReplaceAllString(regexp.QuoteMeta(plan.Files(3).Stdout), "[a-z0-9_]{1,10}") +
				"$",
		)
		if !want.MatchString(files.Stdout) {
			t.Errorf("%q: made %s, planned %s", base, files.Stdout, plan.Files(3).Stdout)
		}
		if err := d.Cleanup(); err != nil {
			t.Error(err)
		}
	}
}
