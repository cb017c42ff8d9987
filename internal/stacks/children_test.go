package stacks

import (
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// loader has two children, as a data loader has: one decodes for ever, one waits for work.
const loader = `
import multiprocessing, signal
def decode():
    ready.put(1)
    signal.pause()
def work():
    ready.put(1)
    queue.get()
def train():
    for target in decode, work:
        context.Process(target=target, daemon=True).start()
        ready.get()
    print("ready", flush=True)
    signal.pause()
context = multiprocessing.get_context("fork")
ready, queue = context.SimpleQueue(), context.SimpleQueue()
train()
`

func TestChildren(t *testing.T) {
	python := testenv.Python(t)
	pid := start(t, python, "-c", loader)
	var got Worker
	testenv.Await(t, "both children to wait", 10e9, func() bool { // they are on their way
		got = Read(Worker{PID: pid}, true)
		sleeps := func(c Child) bool { return c.State == "sleeping" }
		return len(got.Children) == 2 && sleeps(got.Children[0]) && sleeps(got.Children[1]) &&
			len(got.Children[0].Frames) > 0 && got.Children[0].Frames[0].Line == 5 &&
			len(got.Children[1].Frames) > 1 && got.Children[1].Frames[0].Function != "put"
	})
	for _, c := range got.Children {
		if c.PID == pid || c.Name == "" || c.State != "sleeping" {
			t.Errorf("%+v", c)
		}
	}
	if got := Read(Worker{PID: pid}, false).Children; got != nil {
		t.Errorf("not asked for: %+v", got)
	}
}

func TestWorking(t *testing.T) {
	const process, queues = "/usr/lib/python3.12/multiprocessing/process.py", "/usr/lib/python3.12/multiprocessing/queues.py"
	decode := []Frame{
		{"/usr/lib/python3.12/socket.py", 700, "SocketIO.readinto"},
		{"/srv/data.py", 12, "decode"},
		{process, 314, "BaseProcess._bootstrap"},
		{"/srv/train.py", 88, "train"},
	}
	for _, tc := range []struct{ name, want string }{
		{"decodes", "process 7 (pt_data_worker) is in decode, data.py:12"},
		{"waits for work in a fork of the trainer", "process 7 (pt_data_worker): sleeping in pipe_read"},
		{"is spawned", "process 7 (pt_data_worker): sleeping in pipe_read"},
		{"is not Python", "process 7 (pt_data_worker): sleeping in pipe_read"},
	} {
		c := Child{PID: 7, Name: "pt_data_worker", State: "sleeping", Wait: "pipe_read"}
		switch tc.name {
		case "decodes":
			c.Frames = decode
		case "waits for work in a fork of the trainer":
			c.Frames = append([]Frame{{queues, 103, "Queue.get"}}, decode[2:]...)
		case "is spawned":
			c.Frames = []Frame{{queues, 103, "Queue.get"}, {"<string>", 1, "<module>"}}
		}
		if got := c.String(); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestSigns(t *testing.T) {
	ago := func(quiet float64, step int64) Worker {
		return Worker{Life: &Life{Quiet: quiet, Sign: "output", Step: &step}}
	}
	for want, workers := range map[string][]Worker{
		"":                                       {{}, {Life: &Life{Quiet: 5}}},
		", step 12, quiet for 1m05s":             {ago(65, 12)},
		", step 11 to 12, quiet for 0s to 1m05s": {ago(65, 12), {}, ago(0.2, 11)},
		", step -1, quiet for 2s":                {ago(2, -1), ago(2, -1), {Life: &Life{}}},
	} {
		if got := signs(workers); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
