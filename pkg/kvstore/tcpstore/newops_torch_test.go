package tcpstore

import (
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// newOps makes the calls that only torch's newest client has, on the server at a port, and replies with the list of
// their results. It leaves out queues, which Debian's build of torch rejects.
const newOps = `
import datetime, threading, time
import torch.distributed as dist

port, results = int(receive()), []
a, b = connect(port), connect(port)

def print(*values):
    results.append(" ".join(map(str, values)))

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
reply(results)
`

// testNewOps compares the results of torch's client on this server and on torch's.
func (d *torchDriver) testNewOps(t *testing.T) {
	lane := d.lane(t)
	run := func(addr string) (results []string) {
		_, port, _ := net.SplitHostPort(addr)
		lane.run(t, newOps)
		lane.send(t, port)
		if err := lane.in.Decode(&results); err != nil {
			t.Fatal(err)
		}
		return results
	}
	_, ours := startServer(t, ServerOptions{})
	want, got := run(lane.server), run(ours)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-torch's server +ours):\n%s", diff)
	}
	if len(want) != 11 {
		t.Errorf("the script ended early: %q", want)
	}
}
