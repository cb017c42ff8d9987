package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestMisuse runs the commands of testdata/golden/misuse.txt, each in a folder with the same few files, and compares
// what they answer. A command is a line such as
//
//	$ PET_NNODES=two elasticrun ok.py
//
// and the lines that follow are what the launcher writes to stderr, without times, and its exit code. Everybody
// who mistypes something must get one line that names it, where it came from, and what to do.
func TestMisuse(t *testing.T) {
	t.Parallel()
	const path = "../../testdata/golden/misuse.txt"
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"train.py": "pass\n", "pkg/module.py": "pass\n", "run.sh": "#!/bin/bash -e\nexit 3\n", "notes.txt": "text\n",
		"bad.yaml": "nnodes: [1\n", "typo.yaml": "nnode: 1\n",
		"node.yaml": "node-rank: 1\n", "endpoint.yaml": "rdzv-endpoint: http://host1\n", "run/keep": "",
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o700),
		); err != nil {
			t.Fatal(err)
		}
	}
	var after strings.Builder
	for line := range strings.Lines(string(before)) {
		command, isCommand := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		switch {
		case isCommand:
			after.WriteString(line + misuse(t, dir, command))
		case strings.HasPrefix(line, "#"):
			after.WriteString("\n" + line)
		}
	}
	got := strings.TrimLeft(after.String(), "\n")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(before), got); diff != "" && !*update {
		t.Errorf("%s (-want +got); go test ./cmd/elasticrun -run TestMisuse -update rewrites it:\n%s", path, diff)
	}
}

// misuse runs a command and returns its answer.
func misuse(t *testing.T, dir, command string) string {
	t.Helper()
	sh := exec.CommandContext(t.Context(), "sh", "-c", command)
	sh.Dir, sh.WaitDelay = dir, 10*time.Second
	python := testenv.Python(t)
	sh.Env = []string{
		"PATH=" + filepath.Dir(testenv.Binary(t)) + ":/usr/bin:/bin", "HOME=" + dir, "PYTHON_EXEC=" + python,
		"XDG_RUNTIME_DIR=" + filepath.Join(dir, "run"), "TMPDIR=" + dir,
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	sh.Stderr = &stderr
	_ = sh.Run() // the exit code says it
	// What the launcher says about a job or a failed worker is not the answer to a misuse.
	aboutJob := regexp.MustCompile(`exit_code=|a worker has failed|: \d+ workers?\b|succeeded in`)
	answers := regexp.MustCompile(`(?m)^(\d\S+ \S+ )?((WRN|elasticrun: |    elasticrun ).*\n)`).FindAllStringSubmatch(stderr.String(), -1)
	text := ""
	for _, a := range answers {
		if line := a[2]; !aboutJob.MatchString(line) {
			text += strings.ReplaceAll(strings.ReplaceAll(line, dir, "DIR"), "="+host+":", "=THISHOST:")
		}
	}
	return text + "exit code " + strconv.Itoa(sh.ProcessState.ExitCode()) + "\n"
}
