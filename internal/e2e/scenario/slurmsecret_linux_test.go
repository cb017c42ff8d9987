package scenario

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/slurmlab"
)

// drawnSecret returns the secret that the job's launchers have, which must be the same for all three. srun has it too.
func drawnSecret(t *testing.T, j *slurmlab.Job) string {
	t.Helper()
	holders := map[string]int{}
	for _, p := range j.Processes(t) {
		for _, kv := range p.Env {
			if secret, found := strings.CutPrefix(kv, "PET_RDZV_SECRET="); found {
				holders[secret]++
			}
		}
	}
	for secret, n := range holders {
		if len(holders) == 1 && len(secret) == 64 && n > slurmlab.Nodes {
			return secret
		}
	}
	t.Fatalf("job %s has %d secrets", j.ID, len(holders))
	return ""
}

// staysSecret checks that nobody else than the launchers learns the job's secret: not the workers, and not who can read
// command lines, Slurm's records, or files.
func (s *slurmTest) staysSecret(t *testing.T, j *slurmlab.Job) {
	t.Helper()
	secret, agents, workers := drawnSecret(t, j), 0, 0
	readable := []string{s.lab.Dir(), j.Dir}
	for _, p := range j.Processes(t) {
		if strings.Contains(strings.Join(p.Args, " "), secret) {
			t.Errorf("the secret is on the command line of %s", p.Args[0])
		}
		if p.Name == "erun-agent" {
			agents++ // with a /dev/shm of its own
			readable = append(readable, fmt.Sprintf("/proc/%d/root/dev/shm/elasticrun-%d", p.PID, os.Geteuid()))
		}
		if !slices.ContainsFunc(p.Env, func(kv string) bool { return strings.HasPrefix(kv, "RANK=") }) {
			continue
		}
		if workers++; strings.Contains(strings.Join(p.Env, " "), secret) {
			t.Errorf("the worker %q has the secret", p.Args)
		}
	}
	if agents < slurmlab.Nodes || workers < slurmlab.Nodes {
		t.Errorf("only %d agents and %d workers run", agents, workers)
	}
	for _, of := range []string{"job", "step"} {
		if shown := s.lab.Run(t, "scontrol", "--details", "show", of); strings.Contains(shown, secret) {
			t.Errorf("scontrol show %s shows the secret", of)
		}
	}
	for _, dir := range readable {
		if files := filesWith(t, dir, secret); len(files) > 0 {
			t.Errorf("the secret is in %q", files)
		}
	}
}

// filesWith returns the files below dir that contain text, and fails if there is no file.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	read := 0
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // a file may be gone by now
		}
		data, err := os.ReadFile(path)
		if err == nil {
			read++
		}
		if bytes.Contains(data, []byte(text)) {
			found = append(found, path)
		}
		return nil
	})
	if read == 0 {
		t.Errorf("there is no file in %s", dir)
	}
	return found
}

// exportsPath checks that launchers get the secret even if Slurm passes on no other variable than PATH, which they need
// to ask scontrol for addresses.
func (s *slurmTest) exportsPath(t *testing.T) {
	batch := filepath.Join(t.TempDir(), "path.sbatch")
	const worker = `tr '\0' '\n' </proc/$PPID/environ | grep ^PET_RDZV_SECRET= | cksum; echo "here ${PET_RDZV_SECRET-no}"`
	const script = "#!/bin/sh\nexec elasticrun --no-python sh -c \"$1\"\n"
	if err := os.WriteFile(batch, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	j := s.lab.Submit(t, s.env, "--nodes=3", "--export=PATH", batch, worker)
	if got := j.Wait(t, slurmBound); got.State != "COMPLETED" {
		t.Errorf("the job is %+v", got)
	}
	lines := map[string]int{}
	for line := range strings.Lines(j.Output()) {
		lines[strings.TrimSpace(line)]++
	}
	var seen string // the check sum and the length of the line with the secret
	for line := range lines {
		if strings.HasSuffix(line, fmt.Sprint(" ", len("PET_RDZV_SECRET=\n")+64)) {
			seen = line
		}
	}
	if lines[seen] != slurmlab.Nodes || lines["here no"] != slurmlab.Nodes {
		t.Errorf("the launchers do not have the same secret, or the workers have it: %v", lines)
	}
}
