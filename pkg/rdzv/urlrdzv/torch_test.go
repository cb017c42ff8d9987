package urlrdzv

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// torchWorker is the function worker in Python, with torch's rendezvous. It implements torch's store helpers itself,
// because those of torch 1.13 have other names. The tests of package kvstore call the real ones.
const torchWorker = `
import os, sys
from torch.distributed.rendezvous import rendezvous

store, rank, world_size = next(rendezvous(sys.argv[1]))

def arrive(barrier):
    if store.add(f"{barrier}/num_members", 1) == world_size:
        store.set(f"{barrier}/last_member", "<val_ignored>")

arrive("start")
store.wait(["start/last_member"])
store.set(f"data{rank}", f"data of {rank}")
data = [store.get(f"data{i}").decode() for i in range(world_size)]
arrive("data/finished")
if rank == 0:
    store.wait(["data/finished/last_member"])
# In one write, since both workers may share the pipe.
os.write(1, f"torch rank {rank} of {world_size} has {', '.join(data)}\n".encode())
`

// jobWorkers runs the workers of a job, some in Go and some with torch.
type jobWorkers struct {
	t     *testing.T
	mu    sync.Mutex
	mark  string
	lines []string
}

func newJobWorkers(t *testing.T) *jobWorkers {
	t.Helper()
	c := &jobWorkers{t: t, mark: testenv.Mark()}
	t.Cleanup(func() { testenv.NothingLeft(t, c.mark) })
	return c
}

// run runs a command and keeps its stdout.
func (c *jobWorkers) run(vars []string, name string, args ...string) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(append(os.Environ(), "OMP_NUM_THREADS=1", "TMPDIR="+c.t.TempDir(), c.mark), vars...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		c.t.Errorf("%s %q: %v\n%s%s", name, args, err, &out, &errs)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, strings.Split(strings.TrimSpace(out.String()), "\n")...)
}

// expect checks that both workers have received the data of both. kinds has the kind of worker by rank.
func (c *jobWorkers) expect(kinds ...string) {
	c.t.Helper()
	var want []string
	for rank, kind := range kinds {
		want = append(want, fmt.Sprintf("%s rank %d of 2 has data of 0, data of 1", kind, rank))
	}
	slices.Sort(want)
	slices.Sort(c.lines)
	if diff := cmp.Diff(want, c.lines); diff != "" {
		c.t.Errorf("workers (-want +got):\n%s", diff)
	}
}

// self returns the path of this test binary, which runs as a worker if the variable workerURL is set.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// launched returns the command line of a worker whose rank decides whether it is in Go or torch.
func launched(t *testing.T, python string, kinds []string) []string {
	t.Helper()
	const choose = `case $RANK in $1) exec "$2" -c "$3" env://;; esac; exec "$4"`
	torch := slices.Index(kinds, "torch") // -1: none
	return []string{"sh", "-c", choose, "sh", fmt.Sprint(torch), python, torchWorker, self(t)}
}

// Go workers, and Go and torch workers of one job, find each other by env:// under elasticrun, in the agent's store and
// in a store of rank 0.
func TestWorkersUnderElasticrun(t *testing.T) {
	for _, kinds := range [][]string{{"Go", "Go"}, {"torch", "Go"}, {"Go", "torch"}} {
		for own, name := range map[string]string{"0": "the agent's store", "1": "a store of rank 0"} {
			versions := []string{"2.14", testenv.Official}
			if !slices.Contains(kinds, "torch") {
				versions = []string{""}
			}
			for _, version := range versions {
				rare := version == testenv.Official || version != "" && (kinds[0] == "torch") == (own == "1")
				if rare && !testenv.Whole(t) {
					continue // torch joins the agent's store and a store in Go; TestWorkersAlone has a store in torch
				}
				t.Run(strings.Join(kinds, " and ")+", "+name+" "+version, func(t *testing.T) {
					python := ""
					if version != "" {
						python = testenv.Torch(t, version)
					}
					c := newJobWorkers(t)
					args := []string{"--nproc-per-node", "2", "--no-python"}
					c.run([]string{workerURL + "=env://", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=" + own},
						testenv.Binary(t), append(args, launched(t, python, kinds)...)...)
					c.expect(kinds...)
				})
			}
		}
	}
}

// Go and torch workers also find each other under torchrun, whose agent hosts the store.
func TestWorkersUnderTorchrun(t *testing.T) {
	type job struct {
		version string
		kinds   []string
	}
	jobs := []job{{"2.14", []string{"torch", "Go"}}}
	if testenv.Whole(t) {
		jobs = append(jobs, job{"2.14", []string{"Go", "Go"}},
			job{testenv.Official, []string{"torch", "Go"}}, job{testenv.Official, []string{"Go", "torch"}})
	}
	for _, j := range jobs {
		kinds := j.kinds
		t.Run(j.version+", "+strings.Join(kinds, " and "), func(t *testing.T) {
			python := testenv.Torch(t, j.version)
			worker := python
			if j.version != testenv.Official {
				worker = "/usr/bin/python3" // torchrun is in the root already
			}
			c := newJobWorkers(t)
			args := []string{"-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2"}
			c.run([]string{workerURL + "=env://"}, python, append(args, launched(t, worker, kinds)...)...)
			c.expect(kinds...)
		})
	}
}

// Go and torch workers also find each other without a launcher, by tcp:// and by file://, whichever of the two is rank
// 0, and with a store of torch 1.13, which uses protocol version 1.
func TestWorkersAlone(t *testing.T) {
	for _, tc := range []struct {
		name, torch, url string
		query, golang    string // added to torch's URL, and to the Go worker's
		torchRank        int
		rare             bool // only make soak runs it
	}{
		{name: "torch hosts", torch: "2.14", url: "tcp://localhost:PORT", rare: true},
		{name: "Go hosts", torch: "2.14", url: "tcp://localhost:PORT", torchRank: 1, rare: true},
		{name: "torch 1.13 hosts", torch: "1.13", url: "tcp://localhost:PORT", golang: "&generation=1"},
		{name: "Go hosts torch 1.13", torch: "1.13", url: "tcp://localhost:PORT", torchRank: 1, rare: true},
		{name: "a file", torch: "2.14", url: "file://FOLDER/f", rare: true},
		{name: "a file, Go is rank 0", torch: "2.14", url: "file://FOLDER/f", torchRank: 1},
		{name: "official hosts", torch: testenv.Official, url: "tcp://localhost:PORT", rare: true},
		{name: "official hosts without libuv", torch: testenv.Official, url: "tcp://localhost:PORT", query: "&use_libuv=0", rare: true},
		{name: "Go hosts official", torch: testenv.Official, url: "tcp://localhost:PORT", torchRank: 1, rare: true},
		{
			name: "Go hosts official without libuv", torch: testenv.Official, url: "tcp://localhost:PORT",
			query: "&use_libuv=0", torchRank: 1, rare: true,
		},
		{name: "a file, official", torch: testenv.Official, url: "file://FOLDER/f", rare: true},
	} {
		if tc.rare && !testenv.Whole(t) {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			python := testenv.Torch(t, tc.torch)
			folder := t.TempDir()
			url := strings.NewReplacer("PORT", fmt.Sprint(testenv.FreePort(t)), "FOLDER",
				folder).Replace(tc.url) + "?world_size=2&rank="
			c := newJobWorkers(t)
			var wg sync.WaitGroup
			wg.Go(func() { c.run(nil, python, "-c", torchWorker, url+fmt.Sprint(tc.torchRank)+tc.query) })
			wg.Go(func() { c.run([]string{workerURL + "=" + url + fmt.Sprint(1-tc.torchRank) + tc.golang}, self(t)) })
			wg.Wait()
			kinds := []string{"Go", "Go"}
			kinds[tc.torchRank] = "torch"
			c.expect(kinds...)
			if left, _ := filepath.Glob(folder + "/*"); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// Under an agent, torch 1.13 adds the prefix to its keys that the comment of NewSchemes describes.
func TestFirstTorchUnderAgent(t *testing.T) {
	python := testenv.Torch(t, "1.13")
	vars := agentStore(t)
	maps.Copy(vars, map[string]string{"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "3"})
	c := newJobWorkers(t)
	var environment []string
	for name, value := range vars {
		environment = append(environment, name+"="+value)
	}
	c.run(environment, python, "-c",
		`from torch.distributed.rendezvous import rendezvous; next(rendezvous("env://"))[0].set("k", "v")`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := rendezvous(ctx, "env://?rank=1", vars)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	store := kvstore.NewPrefixStore("/worker/attempt_3", r.Store)
	if got, err := store.Get(ctx, "k"); err != nil || string(got) != "v" {
		t.Errorf("k = %q, %v", got, err)
	}
}
