package main

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const digitsFile = "../../testdata/digits/digits.csv.gz"

// testDigits returns the real images.
func testDigits(t *testing.T) digits {
	t.Helper()
	d, err := loadDigits(digitsFile)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// environment returns the environment of a worker as a getenv function.
func environment(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

// Invalid files end a worker before it connects to anything, so these tests need no launcher.
func TestRunBadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	damaged, ahead := filepath.Join(dir, "damaged"), filepath.Join(dir, "ahead")
	writeFile(t, filepath.Join(damaged, "checkpoint.json"), `{"steps": 3`)
	m := newModel()
	m.Steps = 61
	writeModel(t, filepath.Join(ahead, "checkpoint.json"), m)
	file := filepath.Join(dir, "file")
	writeFile(t, file, "")
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"an option", []string{"--steps", "many"}, `invalid value "many" for flag -steps: parse error`},
		{"no images", []string{"--checkpoint-dir", dir, "--data", "/nowhere"}, "open /nowhere: no such file or directory"},
		{"no folder", []string{"--checkpoint-dir", file, "--data", digitsFile}, "mkdir " + file + ": not a directory"},
		{
			"a damaged checkpoint",
			[]string{"--checkpoint-dir", damaged, "--data", digitsFile},
			"cannot use checkpoint " + damaged + "/checkpoint.json: unexpected end of JSON input; remove it to start again",
		},
		{
			"a checkpoint too far",
			[]string{"--checkpoint-dir", ahead, "--data", digitsFile},
			"the checkpoint in " + ahead + " is at step 61, beyond --steps 60",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			getenv := environment(map[string]string{"RANK": "0", "WORLD_SIZE": "4"})
			code := exitCode(run(t.Context(), tc.args, getenv, io.Discard), &stderr)
			if diff := cmp.Diff("paramserver: "+tc.want+"\n", stderr.String()); code != 2 || diff != "" {
				t.Errorf("exit code %d, want 2; stderr (-want +got):\n%s", code, diff)
			}
		})
	}
}

func TestRunHelp(t *testing.T) {
	t.Parallel()
	var stdout bytes.Buffer
	err := run(t.Context(), []string{"--help"}, environment(nil), &stdout)
	if err != nil || !bytes.HasPrefix(stdout.Bytes(), []byte("usage: paramserver --checkpoint-dir DIR")) {
		t.Errorf("%v, %s", err, stdout.String())
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	if code := exitCode(errors.New("disk full"), io.Discard); code != 1 {
		t.Errorf("exit code %d of an error that is no input error, want 1", code)
	}
}
