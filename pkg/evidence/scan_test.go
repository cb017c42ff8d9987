package evidence

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/elasticrun/elasticrun/pkg/failure"
)

var read = time.Unix(1000, 0)

// found scans a whole stderr at once and returns the findings without times.
func found(text string) []failure.Finding {
	var s Scanner
	s.Scan([]byte(text), read)
	all := s.Findings()
	for i := range all {
		all[i].Time = time.Time{}
	}
	return all
}

// trace returns a traceback that ends with the given lines.
func trace(lines ...string) string {
	return "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    main()\n    ~~~~^^\n" +
		strings.Join(lines, "\n") + "\n"
}

// ranked puts torch's prefix before each line, as its excepthook does.
func ranked(text string) string {
	return "[rank3]: " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n[rank3]: ") + "\n"
}

const (
	during = "\nDuring handling of the above exception, another exception occurred:\n\n"
	direct = "\nThe above exception was the direct cause of the following exception:\n\n"
)

// streams are stderrs as torch 1.13, 2.6 and 2.14, CPython and NCCL write them.
var streams = []struct {
	name, text string
	want       []failure.Finding
}{
	{"nothing", "", nil},
	{"ordinary output", "step 1\nloss 0.3 [rank0] INFO all fine\n", nil},
	{"an exception", trace("ValueError: boom"), []failure.Finding{{Kind: failure.Exception, Text: "ValueError: boom"}}},
	{"without a message", trace("KeyError"), []failure.Finding{{Kind: failure.Exception, Text: "KeyError"}}},
	{
		"a message of several lines", trace("ValueError: boom", "second line of it"),
		[]failure.Finding{{Kind: failure.Exception, Text: "ValueError: boom"}},
	},
	{
		"no line end", strings.TrimSuffix(trace("ValueError: boom"), "\n"),
		[]failure.Finding{{Kind: failure.Exception, Text: "ValueError: boom"}},
	},
	{
		"carriage returns", strings.ReplaceAll(trace("ValueError: boom"), "\n", "\r\n"),
		[]failure.Finding{{Kind: failure.Exception, Text: "ValueError: boom"}},
	},
	{
		"after a progress bar", "\r 10%|█  | 1/10\r 20%|██ | 2/10" + trace("ValueError: boom"),
		[]failure.Finding{{Kind: failure.Exception, Text: "ValueError: boom"}},
	},
	{
		"a rank's prefix", ranked(trace("ValueError: boom")),
		[]failure.Finding{{Kind: failure.Exception, Text: "ValueError: boom"}},
	},
	{
		"colors",
		"Traceback (most recent call last):\n  File \x1b[35m\"t.py\"\x1b[0m, line \x1b[35m1\x1b[0m\n    \x1b[31mf\x1b[0m\x1b[1;31m()\x1b[0m\n" +
			"\x1b[1;35mValueError\x1b[0m: \x1b[35mboom\x1b[0m\n",
		[]failure.Finding{{Kind: failure.Exception, Text: "ValueError: boom"}},
	},
	{
		"other threads write in between",
		"Traceback (most recent call last):\n  File \"t.py\", line 1\nWARNING: slow\nINFO\n    f()\nValueError: boom\n",
		[]failure.Finding{{Kind: failure.Exception, Text: "ValueError: boom"}},
	},
	{"cut off in the middle", "Traceback (most recent call last):\n  File \"t.py\", line 1\n", nil},
	{
		"no text", "\xff\xfe\x00" + trace("ValueError: b\xffd \x1b[0m"),
		[]failure.Finding{{Kind: failure.Exception, Text: "ValueError: b?d"}},
	},
	{"an interrupt", trace("KeyboardInterrupt"), nil},
	{"an end in order", trace("SystemExit: 3"), nil},
	{
		"a signal that torch's handler reports",
		trace("torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15"), nil,
	},
	{"ignored by Python", "Exception ignored in: <function f at 0x7f>\n" + trace("ValueError: late"), nil},
	{"not the one after it", "Exception ignored in: <function f at 0x7f>\n" + trace("ValueError: late") +
		trace("KeyError: 1"), []failure.Finding{{Kind: failure.Exception, Text: "KeyError: 1"}}},
	{
		"a group",
		"  + Exception Group Traceback (most recent call last):\n  |   File \"t.py\", line 4, in <module>\n  |     f()\n  | ExceptionGroup: two (2 sub-exceptions)\n" +
			"  +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n    |   File \"t.py\", line 2, in f\n    | ValueError: boom\n    +------------------------------------\n",
		[]failure.Finding{{Kind: failure.Exception, Text: "ValueError: boom"}},
	},

	{
		"wrapped", trace("KeyError: 'lr'") + direct + trace("ConfigError: no learning rate"),
		[]failure.Finding{{Kind: failure.Exception, Text: "KeyError: 'lr' (which led to ConfigError: no learning rate)"}},
	},
	{
		"then the end of the group fails, too", trace("ValueError: boom") + during +
			trace("RuntimeError: [./gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:413"),
		[]failure.Finding{{Kind: failure.Exception, Text: "ValueError: boom"}},
	},
	{
		"a peer's end, wrapped",
		trace("RuntimeError: [./gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:413") + direct +
			trace("TrainingFailed: step 7"),
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "RuntimeError: [./gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:413",
		}},
	},
	{"two that have nothing to do with each other", trace("RuntimeError: Connection reset by peer") + "on we go\n" +
		trace("ValueError: boom"), []failure.Finding{
		{Kind: failure.PeerLost, Text: "RuntimeError: Connection reset by peer"},
		{Kind: failure.Exception, Text: "ValueError: boom"},
	}},

	{
		"gloo 2.14, SIGKILL or exit of a peer",
		ranked(trace("RuntimeError: [./gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:413")),
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "RuntimeError: [./gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:413",
		}},
	},
	{
		"gloo 2.6",
		trace("RuntimeError: [./gloo/transport/tcp/pair.cc:525] Read error [127.0.0.1]:28892: Connection reset by peer"),
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "RuntimeError: [./gloo/transport/tcp/pair.cc:525] Read error [127.0.0.1]:28892: Connection reset by peer",
		}},
	},
	{
		"gloo, a peer hangs",
		trace(
			"RuntimeError: [./gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 6000ms for recv operation to complete",
		),
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "RuntimeError: [./gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 6000ms for recv operation to complete",
		}},
	},
	{
		"gloo, monitored barrier",
		"[rank0]:[E1121 19:00:28.410768053 ProcessGroupGloo.cpp:68] [Rank 0]: Rank 1 failed to pass monitoredBarrier in 60000 ms\n" +
			trace(
				"RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 60000 ms",
				" Original exception: ",
				"[./gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:43653",
			),
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 60000 ms: " +
				"[./gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:43653",
		}},
	},
	{
		"gloo, in C++",
		"terminate called after throwing an instance of 'gloo::IoException'\n  what():  [gloo/transport/tcp/pair.cc:589] Read error [10.0.0.1]:31290: Connection reset by peer\n",
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "what():  [gloo/transport/tcp/pair.cc:589] Read error [10.0.0.1]:31290: Connection reset by peer",
		}},
	},
	{
		"the store's host goes, 2.14",
		"[rank1]:[W1121 19:00:21.388607476 TCPStore.cpp:138] [c10d] recvValueWithTimeout failed on SocketImpl(fd=5): Failed to recv, got 0 bytes. Connection was likely closed.\n" +
			"Exception raised from recvBytes at ./torch/csrc/distributed/c10d/Utils.hpp:790 (most recent call first):\nframe #0: c10::Error::Error\n\n" +
			trace(
				"torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
			),
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
		}},
	},
	{
		"a wait for a key", trace("torch.distributed.DistStoreError: wait timeout after 6000ms, keys: /default_pg/0//never"),
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "torch.distributed.DistStoreError: wait timeout after 6000ms, keys: /default_pg/0//never",
		}},
	},
	{
		"a rank never comes",
		trace("torch.distributed.DistStoreError: Timed out after 7 seconds waiting for clients. 1/2 clients joined."),
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "torch.distributed.DistStoreError: Timed out after 7 seconds waiting for clients. 1/2 clients joined.",
		}},
	},
	{
		"1.13, a rank never comes", trace("RuntimeError: Socket Timeout"),
		[]failure.Finding{{Kind: failure.PeerLost, Text: "RuntimeError: Socket Timeout"}},
	},
	{
		"1.13, the store never comes",
		trace("TimeoutError: The client socket has timed out after 20s while trying to connect to (127.0.0.1, 22342)."),
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "TimeoutError: The client socket has timed out after 20s while trying to connect to (127.0.0.1, 22342).",
		}},
	},
	{
		"a start that is only slow",
		"[W1121 18:53:37.522844192 TCPStore.cpp:330] [c10d] TCP client failed to connect/validate to host 127.0.0.1:25039 - retrying: Connection refused\n", nil,
	},
	{"the user's own words", "retry 1: Connection reset by peer\n", nil},

	{
		"NCCL, a peer exits",
		ranked(
			trace(
				"torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3763, remote process exited or there was a network error, NCCL version 2.28.8",
				"ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
				"Last error:",
				"x",
			),
		),
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3763, remote process exited or there was a network error, NCCL version 2.28.8",
		}},
	},
	{
		"NCCL, the same, as an internal error",
		trace(
			"torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, internal error, NCCL version 2.14.3",
			"ncclInternalError: Internal check failed.",
			"Last error:",
			"Net : Connection closed by remote peer user<50260>",
		),
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, internal error, NCCL version 2.14.3",
		}},
	},
	{
		"NCCL, its own",
		trace(
			"torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1287, invalid usage, NCCL version 2.17.1",
			"ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
			"Last error:",
			"Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 2000",
		),
		[]failure.Finding{{
			Kind: failure.NCCL,
			Text: "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1287, invalid usage, NCCL version 2.17.1",
		}},
	},
	{
		"NCCL, watchdog",
		"[rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.\n",
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "[rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.",
		}},
	},
	{
		"NCCL, a peer's socket",
		"n1:183006:183181 [1] misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer n2<47861>\n",
		[]failure.Finding{{
			Kind: failure.PeerLost,
			Text: "n1:183006:183181 [1] misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer n2<47861>",
		}},
	},
	{
		"NCCL, harmless",
		"n1:1:2 [0] NCCL INFO Using network Socket, Connection refused\nn1:1:2 [0] graph/topo.cc:1 NCCL WARN Missing iommu=pt\n", nil,
	},
	{
		"NCCL, the GPU fails", "n1:1:2 [0] enqueue.cc:99 NCCL WARN Cuda failure 'an illegal memory access was encountered'\n",
		[]failure.Finding{{
			Kind: failure.CUDA,
			Text: "n1:1:2 [0] enqueue.cc:99 NCCL WARN Cuda failure 'an illegal memory access was encountered'",
		}},
	},
	{
		"the watchdog reports a CUDA error",
		"[E ProcessGroupNCCL.cpp:915] [Rank 0] NCCL watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered\n",
		[]failure.Finding{{
			Kind: failure.CUDA,
			Text: "[E ProcessGroupNCCL.cpp:915] [Rank 0] NCCL watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered",
		}},
	},

	{
		"CUDA out of memory", trace("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."),
		[]failure.Finding{{
			Kind: failure.CUDA,
			Text: "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
		}},
	},
	{
		"CUDA error", trace("RuntimeError: CUDA error: device-side assert triggered",
			"CUDA kernel errors might be asynchronously reported"),
		[]failure.Finding{{Kind: failure.CUDA, Text: "RuntimeError: CUDA error: device-side assert triggered"}},
	},
	{
		"HIP error", trace("torch.AcceleratorError: HIP error: invalid device function"),
		[]failure.Finding{{Kind: failure.CUDA, Text: "torch.AcceleratorError: HIP error: invalid device function"}},
	},
	{
		"cuDNN", trace("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
		[]failure.Finding{{Kind: failure.CUDA, Text: "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"}},
	},
	{
		"the kernel's assertion",
		"/w/IndexKernel.cu:92: operator(): block: [0,0,0], thread: [0,0,0] Assertion `index out of bounds` failed.\n",
		[]failure.Finding{{
			Kind: failure.CUDA,
			Text: "/w/IndexKernel.cu:92: operator(): block: [0,0,0], thread: [0,0,0] Assertion `index out of bounds` failed.",
		}},
	},
	{
		"Xid", "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus.\n",
		[]failure.Finding{{Kind: failure.Xid, Text: "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus."}},
	},
	{
		"the interpreter cannot start", "Fatal Python error: init_import_site: Failed to import the site module\n",
		[]failure.Finding{{
			Kind: failure.Exception,
			Text: "Fatal Python error: init_import_site: Failed to import the site module",
		}},
	},
	{
		"a panic of Go",
		"panic: runtime error: index out of range [3] with length 3\n\ngoroutine 1 [running]:\nmain.main()\n\t/tmp/x.go:5 +0x1d\nexit status 2\n",
		[]failure.Finding{{Kind: failure.Fatal, Text: "panic: runtime error: index out of range [3] with length 3"}},
	},
	{
		"a fatal error of Go", "fatal error: all goroutines are asleep - deadlock!\n\ngoroutine 1 [chan receive]:\n",
		[]failure.Finding{{Kind: failure.Fatal, Text: "fatal error: all goroutines are asleep - deadlock!"}},
	},
	{"a compiler's fatal error", "x.cu:1:10: fatal error: foo.h: No such file or directory\n", nil},
	{"a panic that Go's net/http survives", "2026/11/21 19:00:00 http: panic serving 10.0.0.1:5: boom\n", nil},
	{
		"a panic of Rust", "\nthread 'main' (4711) panicked at src/main.rs:2:5:\nindex out of bounds: the len is 3\n" +
			"note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
		[]failure.Finding{{
			Kind: failure.Fatal,
			Text: "thread 'main' (4711) panicked at src/main.rs:2:5: index out of bounds: the len is 3",
		}},
	},
	{
		"a panic of old Rust", "thread 'main' panicked at 'no data', src/main.rs:2:5\nstack backtrace:\n",
		[]failure.Finding{{Kind: failure.Fatal, Text: "thread 'main' panicked at 'no data', src/main.rs:2:5"}},
	},
	{
		"a panic of Rust without its message", "thread 'main' panicked at src/main.rs:2:5:\r\n",
		[]failure.Finding{{Kind: failure.Fatal, Text: "thread 'main' panicked at src/main.rs:2:5:"}},
	},
	{"a panic of another thread in Rust", "thread '<unnamed>' panicked at src/lib.rs:2:5:\nno data\n", nil},
	{"faulthandler", "Fatal Python error: Aborted\n\nThread 0x00007f (most recent call first):\n", nil},
	{"beyond what is looked at", strings.Repeat("x", maxLine) + " CUDA error: no\n", nil},
	{
		"just within", strings.Repeat("x", 9) + " CUDA error: yes" + strings.Repeat("y", maxLine) + "\n" +
			trace("KeyError: 1"),
		[]failure.Finding{
			{Kind: failure.CUDA, Text: "xxxxxxxxx CUDA error: yes" + strings.Repeat("y", maxText-3-25) + "..."},
			{Kind: failure.Exception, Text: "KeyError: 1"},
		},
	},
}

func TestScanner(t *testing.T) {
	for _, tt := range streams {
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

// A finding has the time when its first line was read. Of one kind, the first in a burst counts.
func TestScannerStamps(t *testing.T) {
	at := func(sec int64) time.Time { return time.Unix(sec, 0) }
	var s Scanner
	if s.Used() {
		t.Error("used, and nobody wrote")
	}
	s.Scan([]byte("Traceback (most recent"), at(1))
	s.Scan([]byte(" call last):\n  File"), at(2))
	s.Scan([]byte(" \"x\"\nValueError: a\n"+trace("KeyError: b")), at(3))
	s.Scan([]byte(trace("KeyError: c")), at(60))
	want := []failure.Finding{
		{Kind: failure.Exception, Time: at(1), Text: "ValueError: a"},
		{Kind: failure.Exception, Time: at(60), Text: "KeyError: c"},
	}
	if diff := cmp.Diff(want, s.Findings()); diff != "" || !s.Used() {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, s.Findings()); diff != "" {
		t.Errorf("asked again (-want +got):\n%s", diff)
	}
	for i := range int64(100) {
		s.Scan([]byte(trace("KeyError: c")), at(100+10*i))
	}
	if all := s.Findings(); len(all) != maxFindings || !all[len(all)-1].Time.Equal(at(1090)) {
		t.Errorf("%d are kept, the last of %v", len(all), all[len(all)-1].Time)
	}
}

// A call of Findings in the middle of a traceback changes nothing.
func TestScannerAskedInBetween(t *testing.T) {
	var s Scanner
	s.Scan([]byte("Traceback (most recent call last):\n  File \"x\"\nValueErr"), read)
	_ = s.Findings()
	s.Scan([]byte("or: boom\n"), read)
	if diff := cmp.Diff([]failure.Finding{{Kind: failure.Exception, Time: read, Text: "ValueError: boom"}},
		s.Findings()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A scanner reports an exception as soon as its line is complete, and nothing twice.
func TestScannerNotifies(t *testing.T) {
	var s Scanner
	notified := make(chan struct{}, 1)
	s.Notify(notified)
	for _, step := range []struct {
		text string
		want int
	}{
		{"step 1\nTraceback (most recent call last):\n  File \"x\"\n", 0},
		{"ValueErr", 0},
		{"or: boom\n", 1},
		{"and more of it\n", 0},
		{"terminate called\n  what():  [gloo] Connection reset by peer\n", 1},
	} {
		s.Scan([]byte(step.text), read)
		if len(notified) != step.want {
			t.Fatalf("after %q: notified %d times, want %d", step.text, len(notified), step.want)
		}
		for len(notified) > 0 {
			<-notified
		}
	}
	s.Notify(nil)
	s.Scan([]byte(trace("KeyError: b")), read.Add(time.Minute))
	if len(notified) != 0 {
		t.Error("it still notifies")
	}
}

// pieces are the parts of the streams in the property test below.
func pieces() []string {
	all := []string{
		"Traceback (most recent call last):", "[rank0]: ", "  File \"x\"\n", "ValueError: boom", "\n", "\r", "\r\n",
		"Exception ignored in\n", "CUDA error", "NCCL", "WARN",
		during, "Connection reset by peer", "what()", strings.Repeat("long ", 1000), "\xff",
	}
	for _, s := range streams {
		all = append(all, s.text)
	}
	return all
}

// The findings do not depend on how the stream is split.
func TestScannerChunks(t *testing.T) {
	all := pieces()
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(all), 1, 12).Draw(t, "pieces"), ""))
		var whole, cut Scanner
		whole.Scan(text, read)
		for rest := text; len(rest) > 0; {
			n := rapid.IntRange(1, min(len(rest), rapid.SampledFrom([]int{1, 7, 100, 5000}).Draw(t, "size"))).Draw(t, "n")
			cut.Scan(rest[:n], read)
			rest = rest[n:]
		}
		if diff := cmp.Diff(whole.Findings(), cut.Findings()); diff != "" {
			t.Fatalf("whole and cut differ:\n%s", diff)
		}
	})
}

func FuzzScanner(f *testing.F) {
	for _, s := range streams {
		f.Add([]byte(s.text), 7)
	}
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		size = max(1, size%8192)
		var whole, cut Scanner
		whole.Scan(data, read)
		for rest := data; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			cut.Scan(rest[:min(size, len(rest))], read)
		}
		if diff := cmp.Diff(whole.Findings(), cut.Findings()); diff != "" {
			t.Errorf("whole and cut differ:\n%s", diff)
		}
		for _, one := range whole.Findings() {
			if len(one.Text) > maxText || strings.ContainsAny(one.Text, "\r\n") {
				t.Errorf("text %q", one.Text)
			}
		}
	})
}

// BenchmarkScanner measures the scanner alone, on lines of 80 bytes like those of a training script.
func BenchmarkScanner(b *testing.B) {
	line := "2026-11-21 19:00:28,410 INFO train.py:117] step 1580 loss 0.2831 lr 3.0e-4 it/s\n"
	chunk := bytes.Repeat([]byte(line), 128<<10/len(line))
	var s Scanner
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		s.Scan(chunk, read)
	}
}
