package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// The URLs by which scripts ask for the store on one node.
const (
	byEnv       = "env://"
	byLocalhost = "tcp://localhost:PORT"
	byAddress   = "tcp://127.0.0.1:PORT"
)

// TestMasterAddrIsQuiet checks with which URLs torch writes nothing to stderr, for each MASTER_ADDR on one node. Since
// 2.14 torch recognizes the agent's store only by the text of MASTER_ADDR (torch/distributed/rendezvous.py,
// _agent_store_serves). With another name of the same address rank 0 tries to host a store itself, complains that the
// port is taken, and then uses the agent's store. So no MASTER_ADDR is quiet with both names.
func TestMasterAddrIsQuiet(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	all := []string{byEnv, byLocalhost, byAddress}
	for _, tt := range []struct {
		torch string
		flags []string // besides those of all
		quiet []string
	}{
		{"2.14", nil, []string{byEnv, byAddress}},
		{"2.14", []string{"--master-addr=localhost"}, []string{byEnv, byLocalhost}},
		{"1.13", nil, all},
		{"1.13", []string{"--master-addr=localhost"}, all},
		{"2.6", nil, all},
		{"2.6", []string{"--master-addr=localhost"}, all},
		{testenv.Official, nil, []string{byEnv, byAddress}},
		{testenv.Official, []string{"--master-addr=localhost"}, []string{byEnv, byLocalhost}},
	} {
		if tt.torch == "2.6" && !testenv.Long(t) { // as 1.13
			continue
		}
		t.Run("torch "+tt.torch+strings.Join(tt.flags, " "), func(t *testing.T) {
			t.Parallel()
			var quiet []string
			for _, line := range meetAt(t, tt.torch, tt.flags, all) {
				url, noise, noisy := strings.Cut(strings.TrimPrefix(line, "0 "), ": ")
				switch {
				case strings.HasPrefix(line, "1 ") && noisy:
					t.Errorf("rank 1 is not quiet: %s", line)
				case strings.HasPrefix(line, "1 "):
				case !noisy:
					quiet = append(quiet, url)
				case !strings.Contains(noise, "TORCHELASTIC_USE_AGENT_STORE is enabled so ignoring the error"):
					t.Errorf("rank 0 does not fall back to the agent's store: %s", line)
				}
			}
			if diff := cmp.Diff(tt.quiet, quiet); diff != "" {
				t.Errorf("rank 0 is quiet with these URLs (-want +got):\n%s", diff)
			}
		})
	}
}

// meetAt runs two workers that meet by each URL, and returns their lines, sorted.
func meetAt(t *testing.T, torch string, flags, urls []string) []string {
	t.Helper()
	script, err := filepath.Abs("../../testdata/workers/store_urls.py")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	args := slices.Concat([]string{"--nproc-per-node=2"}, flags, []string{script}, urls)
	cmd := exec.CommandContext(ctx, testenv.Binary(t), args...)
	mark := testenv.Mark()
	cmd.Env = append(cmd.Environ(), "PYTHON_EXEC="+testenv.Torch(t, torch), "OMP_NUM_THREADS=1", "TMPDIR="+t.TempDir(),
		mark)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	testenv.NothingLeft(t, mark)
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	if len(lines) != 2*len(urls) {
		t.Fatalf("the workers wrote %d lines, want %d:\n%s%s", len(lines), 2*len(urls), out, &stderr)
	}
	slices.SortStableFunc(lines, func(a, b string) int { // in the order of the URLs
		return place(urls, a) - place(urls, b)
	})
	return lines
}

// place returns which of the URLs a line is about.
func place(urls []string, line string) int {
	return slices.IndexFunc(urls, func(url string) bool { return strings.HasPrefix(line[2:], url) })
}
