package evidence

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/failure"
)

const dist = "/usr/lib/python3/dist-packages/torch/"

// inFrame returns a traceback whose innermost frame is in that file.
func inFrame(file string, lines ...string) string {
	return "Traceback (most recent call last):\n  File \"/job/train.py\", line 9, in <module>\n    main()\n  File \"" +
		file +
		"\", line 57, in f\n    g()\n    ~^^\n" + strings.Join(lines, "\n") + "\n"
}

// recorded are complete stderrs or their ends, as torch 1.13 and 2.14, CPython 3.11 and 3.14, and NCCL wrote them. Some
// are shortened in the middle.
var recorded = []struct {
	name, text string
	want       []failure.Finding
}{
	// The worker's own connection.
	{
		"its data source resets", inFrame("/job/train.py", "ConnectionResetError: [Errno 104] Connection reset by peer"),
		[]failure.Finding{{Kind: failure.Exception, Text: "ConnectionResetError: [Errno 104] Connection reset by peer"}},
	},
	{
		"its data source refuses", inFrame("/usr/lib/python3.11/socket.py",
			"ConnectionRefusedError: [Errno 111] Connection refused") + during +
			inFrame("/usr/lib/python3.11/urllib/request.py",
				"urllib.error.URLError: <urlopen error [Errno 111] Connection refused>"),
		[]failure.Finding{{
			Kind: failure.Exception,
			Text: "ConnectionRefusedError: [Errno 111] Connection refused (which led to urllib.error.URLError: <urlopen error [Errno 111] Connection refused>)",
		}},
	},
	{
		"a path with a name of ours", inFrame("/usr/lib/python3/dist-packages/requests/adapters.py",
			"requests.exceptions.ConnectionError: HTTPConnectionPool(host='minio', port=9000): "+
				"Max retries exceeded with url: /nccl/tests (Caused by NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused'))"),
		[]failure.Finding{{
			Kind: failure.Exception,
			Text: "requests.exceptions.ConnectionError: HTTPConnectionPool(host='minio', port=9000): " +
				"Max retries exceeded with url: /nccl/tests (Caused by NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused'))",
		}},
	},
	{
		"chained by from", inFrame("/job/train.py", "ConnectionResetError: [Errno 104] Connection reset by peer") + direct +
			inFrame("/job/train.py", "RuntimeError: cannot read the batch"),
		[]failure.Finding{{
			Kind: failure.Exception,
			Text: "ConnectionResetError: [Errno 104] Connection reset by peer (which led to RuntimeError: cannot read the batch)",
		}},
	},
	{
		"under torch's own launcher", inFrame(dist+"distributed/elastic/multiprocessing/errors/__init__.py",
			"TimeoutError: the operation timed out"),
		[]failure.Finding{{Kind: failure.Exception, Text: "TimeoutError: the operation timed out"}},
	},
	{
		"a checkpoint's", inFrame(dist+"distributed/checkpoint/filesystem.py", "BrokenPipeError: [Errno 32] Broken pipe"),
		[]failure.Finding{{Kind: failure.Exception, Text: "BrokenPipeError: [Errno 32] Broken pipe"}},
	},
	{
		"an exception, and then lines of others", trace("ValueError: boom") + "[gloo] Connection reset by peer\n",
		[]failure.Finding{
			{Kind: failure.PeerLost, Text: "[gloo] Connection reset by peer"},
			{Kind: failure.Exception, Text: "ValueError: boom"},
		},
	},

	// A peer's connection.
	{
		"1.13, the store", inFrame(dist+"distributed/rendezvous.py", "RuntimeError: Connection reset by peer"),
		[]failure.Finding{{Kind: failure.PeerLost, Text: "RuntimeError: Connection reset by peer"}},
	},
	{
		"a frame of torch.distributed", inFrame(dist+"distributed/distributed_c10d.py", "RuntimeError: Broken pipe (32)"),
		[]failure.Finding{{Kind: failure.PeerLost, Text: "RuntimeError: Broken pipe (32)"}},
	},
	{
		"UCC", inFrame("/job/train.py",
			"RuntimeError: [Rank 1][ProcessGroupUCC-0][WORK] collective failed: Connection reset by remote peer"),
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "RuntimeError: [Rank 1][ProcessGroupUCC-0][WORK] collective failed: Connection reset by remote peer",
		}},
	},

	// Bystanders of an NCCL error, torch 2.5 and 2.9.
	{
		"dump signal",
		"[rank5]:[E723 01:58:45.667329643 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 5] Received a dump signal due to a collective timeout from  rank 2 and we will try our best " +
			"to dump the debug info. Last enqueued NCCL work: 136, last completed NCCL work: 136.\n",
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "[rank5]:[E723 01:58:45.667329643 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 5] Received a dump signal due to a collective timeout from  rank 2 and we will try our best " +
				"to dump the debug info. Last enqueued NCCL work: 136, last completed NCCL work: 136.",
		}},
	},
	{
		"watchdog hang",
		"[rank2]:[F1229 20:37:13.091528310 ProcessGroupNCCL.cpp:1306] [PG ID 0 PG GUID 0(default_pg) Rank 2] [PG ID 0 PG GUID 0(default_pg) Rank 2] Terminating the process after attempting to dump debug info, " +
			"due to ProcessGroupNCCL watchdog hang.\n",
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "[rank2]:[F1229 20:37:13.091528310 ProcessGroupNCCL.cpp:1306] [PG ID 0 PG GUID 0(default_pg) Rank 2] [PG ID 0 PG GUID 0(default_pg) Rank 2] Terminating the process after attempting to dump debug info, " +
				"due to ProcessGroupNCCL watchdog hang.",
		}},
	},
	{
		"watchdog stuck",
		"[rank0]:[E1229 20:37:12.0 ProcessGroupNCCL.cpp:1375] [PG ID 0 PG GUID 0 Rank 0] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.\n",
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "[rank0]:[E1229 20:37:12.0 ProcessGroupNCCL.cpp:1375] [PG ID 0 PG GUID 0 Rank 0] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.",
		}},
	},

	// Quotes in a message.
	{
		"a DataLoader's process raises", inFrame(dist+"_utils.py",
			"ValueError: Caught ValueError in DataLoader worker process 0.", "Original Traceback (most recent call last):",
			"  File \""+dist+"utils/data/_utils/worker.py\", line 302, in _worker_loop", "    data = fetcher.fetch(index)",
			"           ^^^^^^^^^^^^^^^^^^^^",
			"  File \"/job/train.py\", line 103, in __getitem__", "    raise ValueError(\"sample 3 is broken\")",
			"ValueError: sample 3 is broken", ""),
		[]failure.Finding{{Kind: failure.Exception, Text: "ValueError: sample 3 is broken"}},
	},
	{
		"the same with a rank's prefix", ranked(inFrame(dist+"_utils.py",
			"KeyError: Caught KeyError in DataLoader worker process 1.", "Original Traceback (most recent call last):",
			"  File \"/job/train.py\", line 103, in __getitem__", "    self.meta[i]", "    ~~~~~~~~~^^^", "KeyError: 'x7'", "")),
		[]failure.Finding{{Kind: failure.Exception, Text: "KeyError: 'x7'"}},
	},
	{
		"what was raised of it", inFrame(dist+"_utils.py", "KeyError: Caught KeyError in DataLoader worker process 1.",
			"Original Traceback (most recent call last):",
			"  File \"/job/train.py\", line 103, in __getitem__", "    self.meta[i]", "KeyError: 'x7'", "") + direct +
			inFrame("/job/train.py", "RuntimeError: epoch 2 failed"),
		[]failure.Finding{{Kind: failure.Exception, Text: "KeyError: 'x7' (which led to RuntimeError: epoch 2 failed)"}},
	},
	{
		"a DataLoader's process is killed, 1.13", inFrame("/usr/lib/python3.11/multiprocessing/connection.py",
			"ConnectionResetError: [Errno 104] Connection reset by peer") + during +
			inFrame(dist+"utils/data/_utils/signal_handling.py",
				"RuntimeError: DataLoader worker (pid 25666) is killed by signal: Killed. "),
		[]failure.Finding{{
			Kind: failure.Exception,
			Text: "RuntimeError: DataLoader worker (pid 25666) is killed by signal: Killed.",
		}},
	},
	{
		"and says it once more", inFrame(dist+"utils/data/_utils/signal_handling.py",
			"RuntimeError: DataLoader worker (pid 25666) is killed by signal: Killed. ") + direct +
			inFrame(dist+"utils/data/dataloader.py", "RuntimeError: DataLoader worker (pid(s) 25666) exited unexpectedly"),
		[]failure.Finding{{
			Kind: failure.Exception,
			Text: "RuntimeError: DataLoader worker (pid 25666) is killed by signal: Killed.",
		}},
	},
	{
		"a DataLoader's process is killed, 2.14",
		ranked(
			"Traceback (most recent call last):\n  File \"/job/train.py\", line 116, in loader\n    for _ in loader:\n  File \"" + dist +
				"utils/data/dataloader.py\", line 1293, in _try_get_data\n    data = self._data_queue.get(timeout=timeout)\n  File \"/usr/lib/python3.14/multiprocessing/connection.py\", line 416, in _recv\n" +
				"    chunk = read(handle, to_read)\nConnectionResetError: [Errno 104] Connection reset by peer\n",
		),
		[]failure.Finding{{
			Kind: failure.Exception,
			Text: "a process of a DataLoader is gone: ConnectionResetError: [Errno 104] Connection reset by peer",
		}},
	},
	{
		"and its death is noticed while Python writes that, 1.13",
		"Traceback (most recent call last):\n  File \"/job/train.py\", line 116, in loader\n    for _ in loader:\n  File \"" +
			dist +
			"utils/data/dataloader.py\", line 1282, in _get_data\n    success, data = self._try_get_data()\n                    ^object address  : 0x7fa0cdc8ea40\nobject refcount : 2\n" +
			"object type     : 0x9ec680\nobject type name: ConnectionResetError\nobject repr     : ConnectionResetError(104, 'Connection reset by peer')\nlost sys.stderr\n",
		[]failure.Finding{{
			Kind: failure.Exception,
			Text: "a process of a DataLoader is gone: ConnectionResetError: 104, 'Connection reset by peer'",
		}},
	},
	{
		"torch.multiprocessing", inFrame(dist+"multiprocessing/spawn.py",
			"torch.multiprocessing.spawn.ProcessRaisedException: ", "", "-- Process 0 terminated with the following error:",
			"Traceback (most recent call last):", "  File \""+dist+"multiprocessing/spawn.py\", line 69, in _wrap",
			"    fn(i, *args)", "  File \"/job/train.py\", line 103, in bad_sample",
			"    raise ValueError(\"sample 3 is broken\")", "ValueError: sample 3 is broken", ""),
		[]failure.Finding{{Kind: failure.Exception, Text: "ValueError: sample 3 is broken"}},
	},
	{
		"a pool",
		"multiprocessing.pool.RemoteTraceback: \n\"\"\"\nTraceback (most recent call last):\n  File \"/usr/lib/python3.11/multiprocessing/pool.py\", line 125, in worker\n" +
			"    result = (True, func(*args, **kwds))\nValueError: boom\n\"\"\"\n" + direct +
			inFrame(
				"/usr/lib/python3.11/multiprocessing/pool.py",
				"ValueError: boom",
			),
		[]failure.Finding{{Kind: failure.Exception, Text: "ValueError: boom"}},
	},
	{
		"a message that begins with an empty line", trace("RuntimeError: ", "", "  the checkpoint is truncated", ""),
		[]failure.Finding{{Kind: failure.Exception, Text: "RuntimeError: the checkpoint is truncated"}},
	},
	{
		"no message, and then lines of others", trace("KeyError") + "step 2\n",
		[]failure.Finding{{Kind: failure.Exception, Text: "KeyError"}},
	},
	{
		"no message, and a chain", trace("KeyError", "") + strings.TrimPrefix(during, "\n") + trace("RuntimeError: b"),
		[]failure.Finding{{Kind: failure.Exception, Text: "KeyError (which led to RuntimeError: b)"}},
	},

	// Before an abort.
	{
		"assert", "python3: loss.c:7: step: Assertion `loss == loss' failed.\n",
		[]failure.Finding{{Kind: failure.Fatal, Text: "python3: loss.c:7: step: Assertion `loss == loss' failed."}},
	},
	{
		"std::system_error, nobody knows whose",
		"terminate called after throwing an instance of 'std::system_error'\n  what():  Connection reset by peer\n", nil,
	},
}

func TestRecorded(t *testing.T) {
	for _, tt := range recorded {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, found(tt.text)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, found("step 1\n"+tt.text)); diff != "" {
				t.Errorf("after other output (-want +got):\n%s", diff)
			}
		})
	}
}

// A worker that has waited in vain may have been waiting for a peer that is alive.
func TestWaited(t *testing.T) {
	for text, want := range map[string]bool{
		"RuntimeError: [./gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 6000ms for recv operation to complete":                                                 true,
		"[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.": true,
		"Received a dump signal due to a collective timeout from  rank 2 and we will try our best to dump the debug info.":                                                  true,
		"torch.distributed.DistStoreError: Timed out after 7 seconds waiting for clients. 1/2 clients joined.":                                                              true,
		"RuntimeError: Socket Timeout": true,
		"RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 60000 ms": true,
		"RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 60000 ms: " +
			"[./gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 60000ms for recv operation to complete": true,
		"RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 60000 ms: " +
			"[./gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:413": false,
		"RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 60000 ms: " +
			"[./gloo/transport/tcp/pair.cc:525] Read error [127.0.0.1]:28892: No route to host": false,
		"RuntimeError: Timed out waiting 60000ms for recv operation to complete (which led to RuntimeError: [Rank 0]: " +
			"Rank 1 failed to pass monitoredBarrier in 60000 ms: [pair.cc:547] Connection closed by peer [::1]:413)": true,
		"RuntimeError: [./gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:413":                                                            false,
		"torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3763, remote process exited or there was a network error, NCCL version 2.28.8": false,
		"torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?":               false,
		"RuntimeError: [./gloo/transport/tcp/pair.cc:525] Read error [127.0.0.1]:28892: Connection reset by peer":                                               false,
	} {
		if got := IsWaiting(failure.Finding{Kind: failure.PeerLost, Text: text}); got != want {
			t.Errorf("%q: %v", text, got)
		}
		if IsWaiting(failure.Finding{Kind: failure.Exception, Text: text}) {
			t.Errorf("an error of its own has waited: %q", text)
		}
	}
}

func TestOfErrorFile(t *testing.T) {
	for _, tt := range []struct {
		name, message, callStack, want string
		ofPeer                         bool
	}{
		{name: "a message alone", message: "ValueError: no", want: "ValueError: no"},
		{
			name: "a message of a peer", message: "RuntimeError: [gloo] Connection reset by peer",
			want: "RuntimeError: [gloo] Connection reset by peer", ofPeer: true,
		},
		{name: "a message that begins with an empty line", message: "RuntimeError: \n\nno", want: "RuntimeError: no"},
		{name: "empty"},
		{name: "a traceback", message: "ValueError: no", callStack: trace("ValueError: no"), want: "ValueError: no"},
		{
			name: "a chain", message: "RuntimeError: cannot read the batch",
			callStack: inFrame("/job/train.py", "ConnectionResetError: [Errno 104] Connection reset by peer") + direct +
				inFrame("/job/train.py", "RuntimeError: cannot read the batch"),
			want: "ConnectionResetError: [Errno 104] Connection reset by peer (which led to RuntimeError: cannot read the batch)",
		},
		{
			name: "a frame says it", message: "RuntimeError: Broken pipe (32)",
			callStack: inFrame(dist+"distributed/distributed_c10d.py", "RuntimeError: Broken pipe (32)"),
			want:      "RuntimeError: Broken pipe (32)", ofPeer: true,
		},
		{
			name: "an interrupt", message: "KeyboardInterrupt: ", callStack: trace("KeyboardInterrupt"),
			want: "KeyboardInterrupt: ",
		},
	} {
		if got, ofPeer := SummarizeErrorFile(tt.message, tt.callStack); got != tt.want || ofPeer != tt.ofPeer {
			t.Errorf("%s: %q, %v", tt.name, got, ofPeer)
		}
	}
}

func TestLastLine(t *testing.T) {
	for _, tt := range []struct {
		name, stderr, want string
	}{
		{"nothing", "", ""},
		{"sys.exit", "step 1\ndata is missing\n", "data is missing"},
		{
			"argparse", "usage: train.py [-h] --lr LR\ntrain.py: error: the following arguments are required: --lr\n",
			"train.py: error: the following arguments are required: --lr",
		},
		{
			"no syntax", "  File \"/job/train.py\", line 1\n    def f(\n         ^\nSyntaxError: '(' was never closed\n",
			"SyntaxError: '(' was never closed",
		},
		{"no module", "/usr/bin/python3: No module named trane\n", "/usr/bin/python3: No module named trane"},
		{
			"prefixes with times",
			"12:00:01,117 ERROR rank0 Traceback (most recent call last):\n12:00:01,118 ERROR rank0   File \"t.py\", line 3\n12:00:01,119 ERROR rank0 ValueError: boom\n",
			"12:00:01,119 ERROR rank0 ValueError: boom",
		},
		{
			"rich", "╭───────── Traceback (most recent call last) ─────────╮\n│ /job/train.py:5 in <module>                         │\n╰─────────────────────────────────────────────────────╯\n" +
				"\x1b[1;31mValueError: \x1b[0mthe loss is not a number, which is a long\nstory\n",
			"ValueError: the loss is not a number, which is a long",
		},
		{
			"warnings on the way out",
			"data is missing\n/usr/lib/python3.11/multiprocessing/resource_tracker.py:224: UserWarning: resource_tracker: There appear to be 6 leaked semaphore objects to clean up at shutdown\n" +
				"  warnings.warn('resource_tracker: There appear to be %d '\n" +
				"[rank0]:[W1121 19:00:21.388607476 ProcessGroupNCCL.cpp:1250] Warning: WARNING: destroy_process_group() was not called before program exit\n", "data is missing",
		},
	} {
		if got := lastLine(strings.Split(tt.stderr, "\n")); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestAbortedBy(t *testing.T) {
	for _, tt := range []struct {
		name   string
		stderr []string
		shown  []failure.Finding
		want   string
	}{
		{"nothing", nil, nil, ""},
		{"ordinary lines", []string{"step 1"}, nil, ""},
		{"C++", []string{
			"terminate called after throwing an instance of 'std::length_error'",
			"  what():  the batch is too long",
		}, nil, "what():  the batch is too long"},
		{
			"C++, and frames",
			[]string{
				"  what():  CUDA is lost",
				"Exception raised from f at a.cpp:1 (most recent call first):", "frame #0: c10::Error",
			},
			nil,
			"what():  CUDA is lost",
		},
		{
			"assert",
			[]string{"python3: loss.c:7: step: Assertion `loss == loss' failed."},
			nil,
			"Assertion `loss == loss' failed.",
		},
		{"glog", []string{
			"F0312 10:00:00.000000 123 loss.cc:42] Check failed: loss == loss (nan vs. nan) ",
			"*** Check failure stack trace: ***",
		}, nil, "Check failed: loss == loss (nan vs. nan)"},
		{"the heap", []string{"free(): invalid pointer"}, nil, "free(): invalid pointer"},
		{"the heap again", []string{"double free or corruption (!prev)"}, nil, "double free or corruption (!prev)"},
		{
			"the stack",
			[]string{"*** stack smashing detected ***: terminated"},
			nil,
			"*** stack smashing detected ***: terminated",
		},
		{
			"no exception",
			[]string{"terminate called without an active exception"},
			nil,
			"terminate called without an active exception",
		},
		{
			"no exception after an error",
			[]string{"ValueError: boom", "terminate called without an active exception"},
			[]failure.Finding{{Kind: failure.Exception, Time: at(1), Text: "ValueError: boom"}},
			"ValueError: boom",
		},
		{"what it had shown", []string{"step 1"}, []failure.Finding{{
			Kind: failure.Exception, Time: at(1),
			Text: "KeyError: 1",
		}, {Kind: failure.Exception, Time: at(2), Text: "ValueError: boom"}}, "ValueError: boom"},
	} {
		if got := abortedBy(tt.shown, tt.stderr); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
