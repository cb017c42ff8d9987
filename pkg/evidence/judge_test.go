package evidence

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/failure"
)

// at returns a time in seconds.
func at(sec int64) time.Time { return time.Unix(sec, 0) }

func TestJudge(t *testing.T) {
	own, peer := finding(failure.Exception, at(99), "ValueError: boom"),
		finding(failure.PeerLost, at(99), "RuntimeError: Connection closed by peer")
	older := func(f failure.Finding) failure.Finding {
		f.Time = at(10)
		return f
	}
	old := func(sec int64, f failure.Finding) failure.Finding {
		f.Time = at(100 - sec)
		return f
	}
	file := func(message string) *failure.Finding { return new(finding(failure.ErrorFile, at(98), message)) }
	oom := finding(failure.OOMKilled, at(100), "killed by the OOM killer")
	for _, tt := range []struct {
		name string
		c    Case
		want []failure.Kind
	}{
		{"exit code", Case{Code: 3}, []failure.Kind{failure.Exited}},
		{"exception", Case{Code: 1, Shown: []failure.Finding{own}}, []failure.Kind{failure.Exception, failure.Exited}},
		{
			"exception, and then a peer's end",
			Case{Code: 1, Shown: []failure.Finding{own, peer}},
			[]failure.Kind{failure.Exception, failure.Exited, failure.PeerLost},
		},
		{"a peer's end", Case{Code: 1, Shown: []failure.Finding{peer}}, []failure.Kind{failure.PeerLost}},
		{"a peer's end long ago", Case{Code: 1, Shown: []failure.Finding{older(peer)}}, []failure.Kind{failure.Exited}},
		{
			"an error that was logged long before a peer's end",
			Case{Code: 1, Shown: []failure.Finding{older(own), peer}},
			[]failure.Kind{failure.Suspected, failure.PeerLost},
		},
		{
			"an error that was logged a while before a peer's end",
			Case{Code: 1, Shown: []failure.Finding{old(20, own), peer}},
			[]failure.Kind{failure.Suspected, failure.PeerLost},
		},
		{
			"an error of a while ago, and a slow end",
			Case{Code: 1, Shown: []failure.Finding{old(20, own)}},
			[]failure.Kind{failure.Exception, failure.Exited},
		},
		{
			"an error that was logged long ago",
			Case{Code: 1, Shown: []failure.Finding{older(own)}},
			[]failure.Kind{failure.Exited, failure.Suspected},
		},
		{
			"error file",
			Case{Code: 1, ErrorFile: file("ValueError: no"), Shown: []failure.Finding{own}},
			[]failure.Kind{failure.ErrorFile, failure.Exception, failure.Exited},
		},
		{
			"error file of a peer's end",
			Case{Code: 1, ErrorFile: file("RuntimeError: Connection closed by peer")},
			[]failure.Kind{failure.PeerLost},
		},
		{
			"a peer's end, without a traceback",
			Case{Code: 1, Last: []string{"[rank1]: RuntimeError: Connection closed by peer"}},
			[]failure.Kind{failure.PeerLost},
		},
		{
			"an exception without a traceback",
			Case{Code: 1, Last: []string{"torch.OutOfMemoryError: CUDA out of memory."}},
			[]failure.Kind{failure.CUDA},
		},
		{"SIGSEGV", Case{Signal: syscall.SIGSEGV}, []failure.Kind{failure.Crashed}},
		{
			"SIGSEGV after a peer's end",
			Case{Signal: syscall.SIGSEGV, Shown: []failure.Finding{peer}},
			[]failure.Kind{failure.PeerLost, failure.PeerLost},
		},
		{
			"SIGSEGV after an error of its own, and a peer's end",
			Case{Signal: syscall.SIGSEGV, Shown: []failure.Finding{own, peer}},
			[]failure.Kind{failure.Crashed, failure.Exception, failure.PeerLost},
		},
		{"SIGABRT without a word", Case{Signal: syscall.SIGABRT}, []failure.Kind{failure.Signaled}},
		{
			"SIGABRT of NCCL's watchdog",
			Case{Signal: syscall.SIGABRT, Shown: []failure.Finding{peer}},
			[]failure.Kind{failure.PeerLost, failure.PeerLost},
		},
		{
			"SIGABRT after an error of its own",
			Case{Signal: syscall.SIGABRT, Shown: []failure.Finding{own, peer}},
			[]failure.Kind{failure.Crashed, failure.Exception, failure.PeerLost},
		},
		{"SIGKILL", Case{Signal: syscall.SIGKILL}, []failure.Kind{failure.Killed}},
		{
			"SIGKILL by the OOM killer",
			Case{Signal: syscall.SIGKILL, OOM: &oom},
			[]failure.Kind{failure.OOMKilled, failure.Killed},
		},
		{
			"SIGKILL after a peer's end",
			Case{Signal: syscall.SIGKILL, Shown: []failure.Finding{peer}},
			[]failure.Kind{failure.Killed, failure.PeerLost},
		},
		{"SIGTERM from outside", Case{Signal: syscall.SIGTERM}, []failure.Kind{failure.Signaled}},
		{"a shell reports SIGSEGV", Case{Code: 139}, []failure.Kind{failure.Crashed}},
		{"a shell reports SIGKILL", Case{Code: 137}, []failure.Kind{failure.Killed}},
		{
			"a shell reports SIGABRT by a watchdog",
			Case{Code: 134, Shown: []failure.Finding{peer}},
			[]failure.Kind{failure.PeerLost, failure.PeerLost},
		},
		{"a code of its own", Case{Code: 200}, []failure.Kind{failure.Exited}},
		{"cannot be executed", Case{Code: 126, Failed: true}, []failure.Kind{failure.NotExecutable}},
		{"does not exist", Case{Code: 127, Failed: true}, []failure.Kind{failure.NotFound}},
		{"a shell cannot execute", Case{Code: 126}, []failure.Kind{failure.NotExecutable}},
		{"a shell cannot find", Case{Code: 127}, []failure.Kind{failure.NotFound}},
		{
			"Xid",
			Case{Code: 1, Shown: []failure.Finding{{Kind: failure.Xid, Time: at(97), Text: "NVRM"}, own}},
			[]failure.Kind{failure.Xid, failure.Exception, failure.Exited},
		},

		{"exit 0", Case{}, nil},
		{"exit 0 after an exception that it had handled", Case{Shown: []failure.Finding{own}}, nil},
		{"exit 0, and then its peers lose it", Case{PeersLost: at(101)}, []failure.Kind{failure.LeftEarly}},
		{"exit 0, seen after its peers had lost it", Case{PeersLost: at(99)}, []failure.Kind{failure.LeftEarly}},
		{
			"exit 0 after an exception, and then its peers lose it",
			Case{PeersLost: at(101), Shown: []failure.Finding{own}},
			[]failure.Kind{failure.LeftEarly, failure.Suspected},
		},
		{
			"exit 0 with an error file, and then its peers lose it",
			Case{PeersLost: at(101), ErrorFile: file("ValueError: no")},
			[]failure.Kind{failure.ErrorFile, failure.LeftEarly},
		},
		{"exit 0 of one that had lost a peer", Case{PeersLost: at(99), Shown: []failure.Finding{peer}}, nil},
		{"exit 0 long before its peers give up", Case{PeersLost: at(700)}, []failure.Kind{failure.Absent}},
		{
			"stopped, alive and silent",
			Case{Signal: syscall.SIGTERM, Stopped: at(100), PeersLost: at(99)},
			[]failure.Kind{failure.Absent},
		},
		{
			"stopped, alive and silent, and its end is a success",
			Case{Stopped: at(100), PeersLost: at(99)},
			[]failure.Kind{failure.Absent},
		},
		{"stopped, and it had lost a peer, too", Case{
			Signal: syscall.SIGTERM, Stopped: at(100), PeersLost: at(99),
			Shown: []failure.Finding{peer},
		}, nil},
		{"stopped, and it had logged an error", Case{
			Signal: syscall.SIGTERM, Stopped: at(100), PeersLost: at(99),
			Shown: []failure.Finding{own},
		}, []failure.Kind{failure.Suspected}},
		{"stopped, and it had logged an error and then lost a peer", Case{
			Signal: syscall.SIGTERM, Stopped: at(100), PeersLost: at(99),
			Shown: []failure.Finding{own, peer},
		}, []failure.Kind{failure.Suspected, failure.PeerLost}},
		{"stopped, and it had been stopped before", Case{
			Signal: syscall.SIGKILL, Stopped: at(100), PeersLost: at(99),
			State: 'T',
		}, []failure.Kind{failure.Paused}},
		{"stopped before, and it had logged an error", Case{
			Signal: syscall.SIGKILL, Stopped: at(100), PeersLost: at(99),
			State: 'T', Shown: []failure.Finding{own},
		}, []failure.Kind{failure.Paused, failure.Suspected}},
		{
			"stopped by a debugger before",
			Case{Signal: syscall.SIGKILL, Stopped: at(100), PeersLost: at(99), State: 't'},
			[]failure.Kind{failure.Paused},
		},
		{"stopped before, and nobody has missed it", Case{Signal: syscall.SIGKILL, Stopped: at(100), State: 'T'}, nil},

		{
			"SIGABRT with a reason on stderr",
			Case{Signal: syscall.SIGABRT, Last: []string{"free(): invalid pointer"}},
			[]failure.Kind{failure.Crashed},
		},
		{
			"SIGABRT with a reason after a peer's end",
			Case{
				Signal: syscall.SIGABRT,
				Last:   []string{"  what():  [gloo] Connection reset by peer"}, Shown: []failure.Finding{peer},
			},
			[]failure.Kind{failure.PeerLost, failure.PeerLost},
		},
		{
			"SIGABRT that names no fault",
			Case{Signal: syscall.SIGABRT, Last: []string{"terminate called without an active exception"}},
			[]failure.Kind{failure.Signaled},
		},
		{
			"SIGABRT that names no fault, after a peer's end",
			Case{
				Signal: syscall.SIGABRT,
				Last:   []string{"terminate called without an active exception"}, Shown: []failure.Finding{peer},
			},
			[]failure.Kind{failure.PeerLost, failure.PeerLost},
		},
		{"SIGABRT with a word of some connection", Case{
			Signal: syscall.SIGABRT,
			Last:   []string{"  what():  Connection reset by peer"},
		}, []failure.Kind{failure.Signaled}},
		{
			"an error file that is known to be of a peer's end",
			Case{Code: 1, ErrorFile: new(finding(failure.PeerLost, at(98), "RuntimeError: Broken pipe (32)"))},
			[]failure.Kind{failure.PeerLost},
		},

		{"stopped", Case{Signal: syscall.SIGTERM, Stopped: at(100)}, nil},
		{"stopped, a handler's exit", Case{Code: 143, Stopped: at(100)}, nil},
		{"stopped by SIGKILL", Case{Signal: syscall.SIGKILL, Stopped: at(100), Shown: []failure.Finding{peer}}, nil},
		{
			"stopped while it ended with an exception, or had handled one",
			Case{Signal: syscall.SIGTERM, Stopped: at(100), Shown: []failure.Finding{own}},
			[]failure.Kind{failure.Suspected},
		},
		{
			"died of the stop, and its last words were read late",
			Case{Signal: syscall.SIGTERM, Stopped: at(98), Shown: []failure.Finding{own}},
			[]failure.Kind{failure.Suspected},
		},
		{
			"stopped, and then an exception before SIGKILL",
			Case{Signal: syscall.SIGKILL, Stopped: at(98), Shown: []failure.Finding{own}},
			nil,
		},
		{"stopped, and then an exception", Case{Code: 1, Stopped: at(98), Shown: []failure.Finding{own}}, nil},
		{"stopped long after an exception", Case{
			Signal: syscall.SIGTERM, Stopped: at(100),
			Shown: []failure.Finding{older(own)},
		}, []failure.Kind{failure.Suspected}},
		{"stopped a while after an exception", Case{
			Signal: syscall.SIGTERM, Stopped: at(100),
			Shown: []failure.Finding{old(20, own)},
		}, []failure.Kind{failure.Suspected}},
		{"stopped a while after its GPU had failed", Case{
			Signal: syscall.SIGTERM, Stopped: at(100),
			Shown: []failure.Finding{{Kind: failure.Xid, Time: at(80), Text: "NVRM"}},
		}, []failure.Kind{failure.Xid}},
		{"stopped, and its end is a success", Case{Stopped: at(100)}, nil},
		{"stopped after an exception, and its end is a success", Case{Stopped: at(100), Shown: []failure.Finding{own}}, nil},
		{
			"stopped long after an exception, and its end is a success",
			Case{Stopped: at(100), Shown: []failure.Finding{older(own)}},
			nil,
		},
		{
			"stopped with an error file, and its end is a success",
			Case{Stopped: at(100), ErrorFile: file("ValueError: no"), ErrorWritten: at(98)},
			[]failure.Kind{failure.ErrorFile},
		},
		{"stopped, and it crashes", Case{Signal: syscall.SIGSEGV, Stopped: at(98)}, []failure.Kind{failure.Suspected}},
		{"stopped, and it aborts", Case{Signal: syscall.SIGABRT, Stopped: at(98)}, nil},
		{"stopped after a peer's end, and it crashes", Case{
			Signal: syscall.SIGSEGV, Stopped: at(100),
			Shown: []failure.Finding{peer},
		}, nil},
		{"stopped after an exception, and it crashes", Case{
			Signal: syscall.SIGSEGV, Stopped: at(100),
			Shown: []failure.Finding{own},
		}, []failure.Kind{failure.Suspected, failure.Suspected}},
		{"stopped with an error file", Case{
			Signal: syscall.SIGTERM, Stopped: at(100), ErrorFile: file("ValueError: no"),
			ErrorWritten: at(98),
		}, []failure.Kind{failure.ErrorFile}},
		{"stopped long after an error file", Case{
			Signal: syscall.SIGTERM, Stopped: at(100),
			ErrorFile: file("ValueError: no"), ErrorWritten: at(30),
		}, []failure.Kind{failure.Suspected}},
		{
			"failed after it had handled an error",
			Case{Code: 1, Shown: []failure.Finding{old(6, own), own}},
			[]failure.Kind{failure.Exception, failure.Exited, failure.Suspected},
		},
		{"stopped with a peer's", Case{
			Signal: syscall.SIGTERM, Stopped: at(100), ErrorFile: file("Connection reset by peer"),
			ErrorWritten: at(98),
		}, nil},
		{"stopped, and then an error file", Case{
			Signal: syscall.SIGTERM, Stopped: at(97), ErrorFile: file("ValueError: no"),
			ErrorWritten: at(98),
		}, nil},
		{"stopped with an interrupt's", Case{
			Signal: syscall.SIGTERM, Stopped: at(100), ErrorFile: file("SignalException: x"),
			ErrorWritten: at(98),
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.c.At = at(100)
			var got []failure.Kind
			for _, f := range Judge(tt.c) {
				got = append(got, f.Kind)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The time of evidence is within the life of the worker, whatever a clock or a file server says.
func TestJudgeTimes(t *testing.T) {
	for _, tt := range []struct {
		name        string
		file, shown int64 // when the error file says that it happened, and when the exception was read; 0: there is none
		stopped     bool
		want        time.Time
	}{
		{name: "as they say", file: 60, shown: 70, want: at(60)},
		{name: "an error file from the past", file: 10, want: at(50)},
		{name: "an error file from the future", file: 5000, want: at(100)},
		{name: "stopped, an error file from the past", file: 10, stopped: true, want: at(50)},
		{name: "a file's last line from the past", shown: 10, want: at(50)},
		{name: "a file's last line from the future", shown: 5000, want: at(100)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Case{Code: 1, At: at(100), Began: at(50)}
			if tt.stopped {
				c.Stopped = at(99)
			}
			if tt.file != 0 {
				c.ErrorFile, c.ErrorWritten = new(finding(failure.ErrorFile, at(tt.file), "ValueError: no")), at(tt.file)
			}
			if tt.shown != 0 {
				c.Shown = []failure.Finding{{Kind: failure.Exception, Time: at(tt.shown), Text: "ValueError: no"}}
			}
			all := Judge(c)
			if len(all) == 0 || !Earliest(all).Equal(tt.want) {
				t.Errorf("%v, want the first at %v", all, tt.want)
			}
			for _, f := range all {
				if f.Time.After(c.At) {
					t.Errorf("%+v is of the future", f)
				}
			}
		})
	}
}

func TestJudgeTexts(t *testing.T) {
	for want, c := range map[string]Case{
		"killed by signal 11 (SIGSEGV), core: /x": {
			Signal: syscall.SIGSEGV,
			Text:   "killed by signal 11 (SIGSEGV)", Core: "core: /x",
		},
		"exited with code 139 (a shell's code for signal 11)":   {Code: 139, Text: "exited with code 139"},
		"exited with code 126: a command could not be executed": {Code: 126, Text: "exited with code 126"},
		"could not be executed: no": {
			Code: 127, Failed: true,
			Text: "could not be executed: no",
		},
		"no data (its last line on stderr; exited with code 1)": {
			Code: 1, Text: "exited with code 1",
			Last: []string{"step 1", "no data", ""},
		},
		"SyntaxError: invalid syntax": {
			Code: 1, Text: "exited with code 1",
			Last: []string{`  File "/job/train.py", line 1`, "    def f(:", "          ^", "SyntaxError: invalid syntax"},
		},
		"IndentationError: unexpected indent": {
			Code: 1, Text: "exited with code 1",
			Last: []string{`  File "/job/train.py", line 1`, "    x = 1", "IndentationError: unexpected indent", "goodbye"},
		},
		"goodbye (its last line on stderr; exited with code 1)": {
			Code: 1, Text: "exited with code 1", Last: []string{"TabError: logged by the script", "goodbye"},
		},
		"/usr/bin/python3.12: No module named trane": {
			Code: 1, Text: "exited with code 1", Last: []string{"/usr/bin/python3.12: No module named trane"},
		},
		"train.py: error: unrecognized arguments: --lr": {
			Code: 2, Text: "exited with code 2", Last: []string{"usage: train.py", "train.py: error: unrecognized arguments: --lr"},
		},
		"killed by signal 9 (SIGKILL), not by the kernel's OOM killer": {
			Signal: syscall.SIGKILL, Text: "killed by signal 9 (SIGKILL)", AboutOOM: NotOOM,
		},
		"exited with code 137 (a shell's code for signal 9), not by the kernel's OOM killer": {
			Code: 137, Text: "exited with code 137", AboutOOM: NotOOM,
		},
		"killed by the OOM killer": {
			Signal: syscall.SIGKILL, Text: "killed by signal 9 (SIGKILL)", AboutOOM: NotOOM, // the log knows more
			OOM: new(finding(failure.OOMKilled, at(1), "killed by the OOM killer")),
		},
		"panic: boom": {
			Code: 2, Text: "exited with code 2", Last: []string{"exit status 2"},
			Shown: []failure.Finding{{Kind: failure.Fatal, Text: "panic: boom"}},
		},
		"/usr/bin/env: ‘sh\\r’: No such file or directory": {
			Code: 127, Text: "exited with code 127", Last: []string{
				"/usr/bin/env: ‘sh\\r’: No such file or directory",
				"/usr/bin/env: use -[v]S to pass options in shebang lines",
			},
		},
		"bye (its last line on stderr; exited with code 127: a command, or a library it needs, was not found)": {
			Code: 127, Text: "exited with code 127", Last: []string{"bye"},
		},
		"sh: 1: trane: not found": {
			Code: 127, Text: "exited with code 127", Last: []string{"sh: 1: trane: not found"},
		},
		"killed by signal 6 (SIGABRT): Check failed: a == b": {
			Signal: syscall.SIGABRT, Text: "killed by signal 6 (SIGABRT)",
			Last: []string{"F0312 10:00:00 1 loss.cc:42] Check failed: a == b"},
		},
		"killed by signal 6 (SIGABRT): ValueError: boom": {
			Signal: syscall.SIGABRT, Text: "killed by signal 6 (SIGABRT)",
			Shown: []failure.Finding{{Kind: failure.Exception, Time: time.Time{}, Text: "ValueError: boom"}},
		},
		"exited with code 0 while its peers were still communicating, after ValueError: boom": {
			At: at(100), PeersLost: at(100), Shown: []failure.Finding{{
				Kind: failure.Exception, Time: at(100),
				Text: "ValueError: boom",
			}},
		},
		"had exited with code 0 10m before its peers gave up waiting": {At: at(100), PeersLost: at(700)},
	} {
		if got := Judge(c)[0].Text; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A long last line is cut, and not the exit code after it.
func TestJudgeLongLine(t *testing.T) {
	got := Judge(Case{Code: 3, Text: "exited with code 3", Last: []string{strings.Repeat("x", 5000)}})[0].Text
	if len(got) != maxText || !strings.HasSuffix(got, "xxx... (its last line on stderr; exited with code 3)") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

func TestEarliest(t *testing.T) {
	all := []failure.Finding{
		{Kind: failure.ErrorFile, Time: at(9), Text: ""},
		{Kind: failure.Exception, Time: at(7), Text: ""},
		{Kind: failure.Exited, Time: at(8), Text: ""},
		{Kind: failure.PeerLost, Time: at(1), Text: ""},
	}
	if got := Earliest(all); !got.Equal(at(7)) {
		t.Errorf("%v", got)
	}
	if got := Earliest([]failure.Finding{{Kind: failure.Exited}}); !got.IsZero() || !Earliest(nil).IsZero() {
		t.Errorf("no time is %v", got)
	}
}

func TestGrades(t *testing.T) {
	for kind, want := range map[failure.Kind]int{
		failure.OOMKilled: failure.GradeCrash, failure.Killed: failure.GradeCrash, failure.Crashed: failure.GradeCrash,
		failure.Signaled: failure.GradeOwnFault, failure.Exited: failure.GradeOwnFault, failure.Xid: failure.GradeOwnFault,
		failure.Fatal:     failure.GradeOwnFault,
		failure.LeftEarly: failure.GradeGone, failure.Paused: failure.GradeGone, failure.Suspected: failure.GradeSuspected,
		failure.PeerLost: failure.GradePeer, failure.Absent: failure.GradePeer,
	} {
		if got := kind.Grade(); got != want {
			t.Errorf("%s has grade %d", kind, got)
		}
	}
}
