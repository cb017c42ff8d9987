package hang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/internal/stacks"
)

// Reason says why ranks are the likeliest reason for a hang.
type Reason string

// The reasons, the surest first.
const (
	StoppedWorker  Reason = "stopped"   // a signal has stopped it, and others wait
	KernelWorker   Reason = "kernel"    // it waits in the kernel for a disk or a device, and others wait
	StoppedChild   Reason = "child"     // a process that it has started is stopped or waits in the kernel
	ExitedEarly    Reason = "exited"    // it has exited with 0, and others wait for a peer
	NotWaiting     Reason = "elsewhere" // the others wait for a peer, and it does not
	OtherOperation Reason = "operation" // it waits for a peer in another operation than the others
	OtherPlace     Reason = "place"     // it is at another place in the program than most
	BehindOthers   Reason = "behind"    // it has reported an earlier step than the others
	NoneStandsOut  Reason = ""          // all do the same, or no rank stands out
)

// odd returns the ranks that are the likeliest reason, and why; no rank if none stands out. A job's only worker is the
// reason.
func odd(workers []stacks.Worker) ([]int, Reason) {
	all := len(workers)
	if all < 2 {
		return ranksOf(workers), NoneStandsOut
	}
	some := func(is func(stacks.Worker) bool) []stacks.Worker {
		found := slices.DeleteFunc(slices.Clone(workers), func(w stacks.Worker) bool { return !is(w) })
		if len(found) == all {
			return nil
		}
		return found
	}
	for _, rule := range []struct {
		is     func(stacks.Worker) bool
		reason Reason
	}{
		{func(w stacks.Worker) bool { return activityOf(w) == stacks.Stopped }, StoppedWorker},
		{func(w stacks.Worker) bool { return activityOf(w) == stacks.Disk }, KernelWorker},
		{func(w stacks.Worker) bool { return w.Life != nil && w.Life.StuckChild != "" }, StoppedChild},
	} {
		if found := some(rule.is); len(found) > 0 {
			return ranksOf(found), rule.reason
		}
	}
	if slices.ContainsFunc(workers, waitsForPeer) {
		if found := some(exited); len(found) > 0 && 2*len(found) <= all {
			return ranksOf(found), ExitedEarly
		}
		elsewhere := some(func(w stacks.Worker) bool { return !waitsForPeer(w) && !exited(w) })
		switch {
		case 2*len(elsewhere) > all: // these may wait too: for a GPU, or for the result of an asynchronous operation
			return nil, NoneStandsOut
		case len(elsewhere) > 0:
			return ranksOf(elsewhere), NotWaiting
		}
		if found := minority(workers, operation); len(found) > 0 {
			return ranksOf(found), OtherOperation
		}
	} else if found := some(exited); len(found) > 0 && 2*len(found) <= all {
		return ranksOf(found), ExitedEarly
	}
	for _, place := range []func(stacks.Worker) string{userPlace, userPath} {
		if found := minority(workers, place); len(found) > 0 {
			return ranksOf(found), OtherPlace
		}
	}
	if found := behind(workers); len(found) > 0 {
		return ranksOf(found), BehindOthers
	}
	return nil, NoneStandsOut
}

func ranksOf(workers []stacks.Worker) []int {
	ranks := make([]int, len(workers))
	for i, w := range workers {
		ranks[i] = w.Rank
	}
	return ranks
}

// minority groups the workers by place and returns those outside the largest group. It returns nil if several groups
// are the largest, or if the largest has less than half of the workers.
func minority(workers []stacks.Worker, place func(stacks.Worker) string) []stacks.Worker {
	groups := map[string]int{}
	for _, w := range workers {
		groups[place(w)]++
	}
	most, ties := "", 0
	for p, n := range groups {
		switch {
		case n > groups[most]:
			most, ties = p, 1
		case n == groups[most]:
			ties++
		}
	}
	if len(groups) < 2 || ties > 1 || 2*groups[most] < len(workers) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(workers), func(w stacks.Worker) bool { return place(w) == most })
}

// behind returns the workers whose last reported step is lower than the highest. It returns nil if a worker has
// reported no step, or if more than half of the workers are behind.
func behind(workers []stacks.Worker) []stacks.Worker {
	var highest int64
	for i, w := range workers {
		if w.Life == nil || w.Life.Step == nil {
			return nil
		}
		if i == 0 || *w.Life.Step > highest {
			highest = *w.Life.Step
		}
	}
	found := slices.DeleteFunc(slices.Clone(workers), func(w stacks.Worker) bool { return *w.Life.Step == highest })
	if 2*len(found) > len(workers) {
		return nil
	}
	return found
}

// userPlace is the place of a worker in the user's program.
func userPlace(w stacks.Worker) string {
	if exited(w) {
		return stacks.Exited
	}
	f, ok := w.UserFrame()
	if !ok {
		return string(activityOf(w)) + w.Wait
	}
	return fmt.Sprintf("%s:%d", f.File, f.Line)
}

// userPath is how a worker came to its place in the user's program: all calls that are no library's.
func userPath(w stacks.Worker) string {
	var path strings.Builder
	for _, f := range w.Frames() {
		if !f.IsLibrary() {
			fmt.Fprintf(&path, "%s:%d\n", f.File, f.Line)
		}
	}
	return path.String()
}

// operation returns the call in which a worker waits for a peer; "" if it does not wait for one. Of several such calls
// it is the one next to the user's code, because the inner ones are wrappers and helpers.
func operation(w stacks.Worker) string {
	name := ""
	for _, f := range w.Frames() {
		switch {
		case isWait(f):
			name = f.Function
		case !f.IsLibrary():
			return name
		}
	}
	return name
}

// waitsForPeer reports whether the main thread is in a call that waits for other ranks. Callers of the user's innermost
// call do not count: DistributedDataParallel.forward calls the user's model.
func waitsForPeer(w stacks.Worker) bool { return !exited(w) && operation(w) != "" }

// waits are the calls in which a worker waits for other ranks: the end of a file's path and, unless the whole file
// counts, the last part of a function's name. They are from torch 1.13 to 2.14. A whole folder would be wrong: the
// code of checkpoints is in torch/distributed too.
var waits = []struct {
	file      string
	functions []string
}{
	{"torch/distributed/distributed_c10d.py", nil},
	{"torch/distributed/rendezvous.py", nil},
	{"torch/distributed/_functional_collectives.py", nil},
	{"torch/distributed/elastic/utils/store.py", nil},
	{"torch/nn/parallel/distributed.py", nil},
	{"torch/nn/modules/_functions.py", nil}, // SyncBatchNorm
	{"torch/distributed/fsdp/_runtime_utils.py", []string{"_reduce_grad", "_unshard", "_wait_for_computation_stream"}},
	{"torch/distributed/pipelining/schedules.py", []string{"_wait_batch_p2p", "_sorted_batch_p2p"}},
	{"torch/autograd/graph.py", []string{"_engine_run_backward"}}, // DDP reduces gradients in the backward pass
	{"torch/autograd/__init__.py", []string{"backward"}},
	{"torch/cuda/__init__.py", []string{"synchronize"}},
	{"torch/cuda/streams.py", []string{"synchronize"}},
	{"torch/distributed/rpc/api.py", []string{"_all_gather", "_barrier", "shutdown"}},
	{"deepspeed/comm/comm.py", nil},
	{"deepspeed/comm/torch.py", nil},
	{"horovod/torch/mpi_ops.py", []string{"synchronize", "poll"}},
}

// isWait reports whether a call waits for other ranks.
func isWait(f stacks.Frame) bool {
	name := lastPart(f.Function)
	for _, w := range waits {
		if strings.HasSuffix(f.File, "/"+w.file) && (w.functions == nil || slices.Contains(w.functions, name)) {
			return true
		}
	}
	return false
}
