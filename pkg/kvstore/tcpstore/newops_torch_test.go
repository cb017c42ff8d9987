package tcpstore

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// newOps makes the calls that only torch's newest client has, on the server at the given port or on one of its own,
// and prints their results. It leaves out queues, which Debian's build of torch rejects.
const newOps = `
import datetime, sys, threading, time
import torch.distributed as dist

def connect(port, master=False):
    return dist.TCPStore("127.0.0.1", port, is_master=master, use_libuv=False, wait_for_workers=False)

host = connect(0, master=True) if sys.argv[1] == "0" else None
port = host.port if host else int(sys.argv[1])
a, b = connect(port), connect(port)

def barrier(store, key, members, ms=100):
    try:
        store.barrier(key, members, datetime.timedelta(milliseconds=ms))
        return "passed"
    except dist.DistStoreError:
        return "timed out"

def state(key):
    return sorted(a.list_keys()), a.num_keys(), a.check([key]), a.get(key)

print(a.list_keys())
a.multi_set(["k", "l/m"], ["v", ""])
print(sorted(b.list_keys()))
print(barrier(a, "one", 1), state("one"))
print(barrier(a, "late", 2), state("late"))                            # its arrival stays counted
print(barrier(b, "late", 2), barrier(a, "late", 2), state("late"))     # and it never resets
print(barrier(a, "none", 0), barrier(a, "less", -1))
print(barrier(a, "gone", 2), a.delete_key("gone"), barrier(b, "gone", 2), barrier(a, "gone", 2))
together = []
threads = [threading.Thread(target=lambda s=s: together.append(barrier(s, "both", 2, 10000))) for s in (a, b)]
for t in threads: t.start()
for t in threads: t.join()
print(together)
for i, store in enumerate([lambda k: b.set(k, "5"), lambda k: b.add(k, 1), lambda k: b.append(k, "0")]):
    key, waited = "wait%d" % i, []
    t = threading.Thread(target=lambda: waited.append(barrier(a, key, 9, 10000)))
    t.start()
    while not b.check([key]): time.sleep(.005)  # until it has arrived, which wakes nobody
    store(key)                                  # whoever stores the key ends the barrier
    t.join()
    print(waited, b.get(key))
`

// TestNewOpsOfTorch compares the results of torch 2.14's client on this server and on torch's.
func TestNewOpsOfTorch(t *testing.T) {
	python := testenv.Torch(t, "2.14")
	run := func(port string) string {
		cmd := exec.CommandContext(t.Context(), python, "-c", newOps, port)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr.String())
		}
		return string(out)
	}
	_, addr := startServer(t, ServerOptions{})
	_, port, _ := strings.Cut(addr, ":")
	want, got := run("0"), run(port)
	if want != got {
		t.Errorf("on torch's server:\n%s\non ours:\n%s", want, got)
	}
	if strings.Count(want, "\n") != 11 {
		t.Errorf("the script ended early:\n%s", want)
	}
}
