package tcpstore

import (
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// newOps makes the calls that only torch's newest client has, on the server at a port, and replies with the list of
// their results. Queues need libuv. A call that must time out gets 100 ms.
const newOps = `
import datetime, threading, time
import torch.distributed as dist

port, libuv = receive()
port, results = int(port), []
a, b = connect(port), connect(port)

def print(*values):
    results.append(" ".join(map(str, values)))

def barrier(store, key, members, ms=10000):
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
print(barrier(a, "late", 2, 100), state("late"))                       # its arrival stays counted
print(barrier(b, "late", 2), barrier(a, "late", 2), state("late"))     # and it never resets
print(barrier(a, "none", 0), barrier(a, "less", -1))
print(barrier(a, "gone", 2, 100), a.delete_key("gone"), barrier(b, "gone", 2, 100), barrier(a, "gone", 2))
together = []
threads = [threading.Thread(target=lambda s=s: together.append(barrier(s, "both", 2))) for s in (a, b)]
for t in threads: t.start()
for t in threads: t.join()
print(together)
for i, store in enumerate([lambda k: b.set(k, "5"), lambda k: b.add(k, 1), lambda k: b.append(k, "0")]):
    key, waited = "wait%d" % i, []
    t = threading.Thread(target=lambda: waited.append(barrier(a, key, 9)))
    t.start()
    while not b.check([key]): time.sleep(.005)  # until it has arrived, which wakes nobody
    store(key)                                  # whoever stores the key ends the barrier
    t.join()
    print(waited, b.get(key))

def pop(store, key, ms=100, **kwargs):
    store.set_timeout(datetime.timedelta(milliseconds=ms))
    try:
        return store.queue_pop(key, **kwargs)
    except dist.QueueEmptyError:
        return "empty"
    except dist.DistStoreError:
        return "timed out"

if libuv:
    before = a.num_keys()
    for value in "x", "", "z": a.queue_push("q", value)
    print(b.queue_len("q"), a.queue_len("none"), a.check(["q"]), a.check(["none"]), "q" in a.list_keys(), a.num_keys() - before)
    print(pop(b, "q"), pop(b, "q", block=False), pop(a, "q"), a.queue_len("q"), a.check(["q"]), a.num_keys() - before)
    print(pop(a, "q", block=False), pop(a, "q"))
    a.set("q", "key"); a.queue_push("q", "value")               # a key and a queue of one name
    print(b.get("q"), a.delete_key("q"), a.queue_len("q"), pop(b, "q"), a.check(["q"]))
    popped = []
    threads = [threading.Thread(target=lambda s=s: popped.append(pop(s, "line", 10000))) for s in (connect(port), connect(port))]
    for t in threads: t.start()
    for value in "1", "2": a.queue_push("line", value)
    for t in threads: t.join()
    print(sorted(popped))
reply(results)
`

// testNewOps compares the results of torch's client on this server and on torch's.
func (d *torchDriver) testNewOps(t *testing.T) {
	lane := d.lane(t)
	run := func(addr string) (results []string) {
		_, port, _ := net.SplitHostPort(addr)
		lane.run(t, newOps)
		lane.send(t, []any{port, d.libuv})
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
	lines := 11
	if d.libuv {
		lines = 16
	}
	if len(want) != lines {
		t.Errorf("the script ended early: %q", want)
	}
}
