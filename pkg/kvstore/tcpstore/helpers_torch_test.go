package tcpstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// torchHelpers calls torch's store helpers, one thread for each rank of each job. It replies to each with the values,
// or the text of the error.
const torchHelpers = `
import threading
from torch.distributed.elastic.utils import store as helpers

replying = threading.Lock()

def call(job, rank):
    store = connect(int(job["Port"]))
    if job["Call"] == "barrier":
        helpers.barrier(store, job["World"], "p", job["Timeout"], rank, lambda r: f"host{r}", job["Timeout"] / 3)
        return []
    if job["Call"] == "synchronize":
        return [v.decode() for v in helpers.synchronize(store, f"data of {rank}".encode(), rank, job["World"], "p")]
    store.set(f"p{rank}", f"data of {rank}")
    return [v.decode() for v in helpers.get_all(store, rank, "p", job["World"])]

def run(job, rank):
    result = {"Name": job["Name"], "Rank": rank}
    try:
        result["Values"] = call(job, rank)
    except Exception as e:
        result["Err"] = f"{type(e).__name__}: {e}"
    with replying:
        reply(result)

reply("ready")
calls = [(job, rank) for job in receive() for rank in job["Torch"] or []]
threads = [threading.Thread(target=run, args=call) for call in calls]
for t in threads: t.start()
for t in threads: t.join()
reply({"Name": ""})
`

// helperJob is a call of one store helper by all ranks that take part: the ranks in Torch call torch's helper, those
// in Go this module's.
type helperJob struct {
	Name, Call string
	World      int
	Torch, Go  []int
	Timeout    float64 // seconds for the barrier, and a third of it for its trace
	Port       string

	want   map[int]string // the expected values of each rank, joined by commas, or its error
	server *Server
}

// helperResult is the result of a rank.
type helperResult struct {
	Name   string
	Rank   int
	Values []string
	Err    string
}

func (r helperResult) String() string { return r.Err + strings.Join(r.Values, ",") }

const (
	torchMissing = "DistStoreError: Timed out waiting on barrier on rank 0, for key prefix: p " +
		"(world_size=3, missing_ranks=[host2], timeout=7.5)"
	torchCheck = "DistStoreError: Timed out waiting on barrier on rank 1, for key prefix: p " +
		"(world_size=3, missing_ranks=[[<check rank 0 (host0) for missing rank info>]], timeout=7.5)"
	torchTimeout = "DistStoreError: wait timeout after 7500ms, keys: /p/last_member"
	goMissing    = `barrier "p" of 3 members timed out on rank 0 after 7.5s: missing ranks [host2]`
	goCheck      = `barrier "p" of 3 members timed out on rank 1 after 7.5s: see rank 0 (host0) for the missing ranks`
)

// helperJobs returns complete and incomplete worlds, of torch, of Go and of both.
func helperJobs() []*helperJob {
	data, none := "data of 0,data of 1,data of 2", ""
	all := func(s string) map[int]string { return map[int]string{0: s, 1: s, 2: s} }
	var jobs []*helperJob
	for _, who := range []struct {
		name          string
		torch, golang []int
	}{
		{name: "torch", torch: []int{0, 1, 2}},
		{name: "Go", golang: []int{0, 1, 2}},
		{name: "torch rank 0", torch: []int{0, 2}, golang: []int{1}},
		{name: "Go rank 0", torch: []int{1, 2}, golang: []int{0}},
	} {
		for call, got := range map[string]string{"barrier": none, "synchronize": data, "get_all": data} {
			jobs = append(jobs, &helperJob{
				Name: call + " " + who.name, Call: call, World: 3, Timeout: 60,
				Torch: who.torch, Go: who.golang, want: all(got),
			})
		}
	}
	for _, j := range []*helperJob{
		{Name: "missing torch", Torch: []int{0, 1}, want: map[int]string{0: torchMissing, 1: torchCheck}},
		{Name: "missing Go", Go: []int{0, 1}, want: map[int]string{0: goMissing, 1: goCheck}},
		{Name: "missing torch rank 0", Torch: []int{0}, Go: []int{1}, want: map[int]string{0: torchMissing, 1: goCheck}},
		{Name: "missing Go rank 0", Torch: []int{1}, Go: []int{0}, want: map[int]string{0: goMissing, 1: torchCheck}},
		{Name: "rank 0 missing", Torch: []int{1}, Go: []int{2}, want: map[int]string{
			1: torchTimeout, 2: `barrier "p" of 3 members: wait for key "p/last_member": timed out: context deadline exceeded`,
		}},
	} {
		j.Call, j.World, j.Timeout = "barrier", 3, 7.5 // ranks that are slow to come must come in time
		jobs = append(jobs, j)
	}
	return jobs
}

// testHelpers lets ranks of Go and of torch 2.14 call the same helper on one TCPStore. Each side understands
// the other's keys and names the missing ranks, and the store finally holds what a world of torch alone leaves.
func (d *torchDriver) testHelpers(t *testing.T) {
	jobs := helperJobs()
	for _, j := range jobs {
		var addr string
		j.server, addr = startServer(t, ServerOptions{})
		_, j.Port, _ = strings.Cut(addr, ":")
	}
	got := map[string]map[int]string{}
	for r := range runHelpers(t, d.lane(t), jobs) {
		if got[r.Name] == nil {
			got[r.Name] = map[int]string{}
		}
		got[r.Name][r.Rank] = r.String()
	}
	for _, j := range jobs {
		if diff := cmp.Diff(j.want, got[j.Name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", j.Name, diff)
		}
	}
	for like, others := range map[string][]string{
		"barrier torch":     {"barrier Go", "barrier torch rank 0", "barrier Go rank 0"},
		"synchronize torch": {"synchronize Go", "synchronize torch rank 0", "synchronize Go rank 0"},
		"get_all torch":     {"get_all Go", "get_all torch rank 0", "get_all Go rank 0"},
		"missing torch":     {"missing Go", "missing torch rank 0", "missing Go rank 0"},
	} {
		want := keysOf(jobs, like)
		if len(want) < 2 {
			t.Errorf("%s left only %v", like, want)
		}
		for _, name := range others {
			if diff := cmp.Diff(want, keysOf(jobs, name)); diff != "" {
				t.Errorf("%s leaves other keys than %s (-want +got):\n%s", name, like, diff)
			}
		}
	}
}

// keysOf returns the keys that a job left in its store.
func keysOf(jobs []*helperJob, name string) map[string]string {
	i := slices.IndexFunc(jobs, func(j *helperJob) bool { return j.Name == name })
	left := map[string]string{}
	jobs[i].server.inLoop(func(l *loop) {
		for key := range l.store.Keys() {
			value, _ := l.store.Get(key)
			left[key] = string(value)
		}
	})
	return left
}

// runHelpers runs all jobs concurrently and returns the result of every rank.
func runHelpers(t *testing.T, lane *torchLane, jobs []*helperJob) <-chan helperResult {
	t.Helper()
	lane.run(t, torchHelpers)
	var ready string
	if err := lane.in.Decode(&ready); err != nil {
		t.Fatal(err)
	}
	lane.send(t, jobs)
	got := make(chan helperResult, 100)
	var wg sync.WaitGroup
	for _, j := range jobs {
		for _, rank := range j.Go {
			wg.Go(func() { got <- j.call(t.Context(), rank) })
		}
	}
	for {
		var r helperResult
		if err := lane.in.Decode(&r); err != nil {
			t.Error(err)
			break
		}
		if r.Name == "" { // torch's last reply
			break
		}
		got <- r
	}
	wg.Wait()
	close(got)
	return got
}

// call runs the helper on a rank of Go.
func (j *helperJob) call(ctx context.Context, rank int) helperResult {
	r := helperResult{Name: j.Name, Rank: rank}
	c, err := Dial(ctx, "127.0.0.1:"+j.Port, ClientOptions{})
	if err != nil {
		r.Err = err.Error()
		return r
	}
	var values [][]byte
	data := fmt.Appendf(nil, "data of %d", rank)
	timeout := time.Duration(j.Timeout * float64(time.Second))
	switch j.Call {
	case "barrier":
		err = kvstore.Barrier(ctx, c, kvstore.BarrierOptions{
			WorldSize: j.World, Prefix: "p", Timeout: timeout,
			Trace: &kvstore.Trace{
				Rank: rank, Decode: func(rank int) string { return fmt.Sprintf("host%d", rank) }, Timeout: timeout / 3,
			},
		})
	case "synchronize":
		values, err = kvstore.Synchronize(ctx, c, data, rank, j.World, "p", 0)
	case "get_all":
		if err = c.Set(ctx, fmt.Sprintf("p%d", rank), data); err == nil {
			values, err = kvstore.GetAll(ctx, c, rank, j.World, "p")
		}
	}
	for _, value := range values {
		r.Values = append(r.Values, string(value))
	}
	if err := errors.Join(err, c.Close()); err != nil {
		r.Err = strings.ReplaceAll(err.Error(), " at store 127.0.0.1:"+j.Port, "")
	}
	return r
}
