package evidence

import (
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at is a time in seconds.
func at(sec int64) time.Time { return time.Unix(sec, 0) }

func TestJudge(t *testing.T) {
	own, peer := Finding{Exception, at(99), "ValueError: boom"}, Finding{PeerLost, at(99), "RuntimeError: Connection closed by peer"}
	older := func(f Finding) Finding {
		f.Time = at(10)
		return f
	}
	old := func(sec int64, f Finding) Finding {
		f.Time = at(100 - sec)
		return f
	}
	file := func(message string) *Finding { return &Finding{ErrorFile, at(98), message} }
	oom := Finding{OOMKilled, at(100), "killed by the OOM killer"}
	for _, tt := range []struct {
		name string
		c    Case
		want []Kind
	}{
		{"exit code", Case{Code: 3}, []Kind{Exited}},
		{"exception", Case{Code: 1, Shown: []Finding{own}}, []Kind{Exception, Exited}},
		{"exception, and then a peer's end", Case{Code: 1, Shown: []Finding{own, peer}}, []Kind{Exception, Exited, PeerLost}},
		{"a peer's end", Case{Code: 1, Shown: []Finding{peer}}, []Kind{PeerLost}},
		{"a peer's end long ago", Case{Code: 1, Shown: []Finding{older(peer)}}, []Kind{Exited}},
		{"an error that was logged long before a peer's end", Case{Code: 1, Shown: []Finding{older(own), peer}}, []Kind{Suspected, PeerLost}},
		{"an error that was logged a while before a peer's end", Case{Code: 1, Shown: []Finding{old(20, own), peer}}, []Kind{Suspected, PeerLost}},
		{"an error of a while ago, and a slow end", Case{Code: 1, Shown: []Finding{old(20, own)}}, []Kind{Exception, Exited}},
		{"an error that was logged long ago", Case{Code: 1, Shown: []Finding{older(own)}}, []Kind{Exited, Suspected}},
		{"error file", Case{Code: 1, ErrorFile: file("ValueError: no"), Shown: []Finding{own}}, []Kind{ErrorFile, Exception, Exited}},
		{"error file of a peer's end", Case{Code: 1, ErrorFile: file("RuntimeError: Connection closed by peer")}, []Kind{PeerLost}},
		{"SIGSEGV", Case{Signal: syscall.SIGSEGV}, []Kind{Crashed}},
		{"SIGSEGV after a peer's end", Case{Signal: syscall.SIGSEGV, Shown: []Finding{peer}}, []Kind{PeerLost, PeerLost}},
		{"SIGSEGV after an error of its own, and a peer's end", Case{Signal: syscall.SIGSEGV, Shown: []Finding{own, peer}}, []Kind{Crashed, Exception, PeerLost}},
		{"SIGABRT without a word", Case{Signal: syscall.SIGABRT}, []Kind{Signalled}},
		{"SIGABRT of NCCL's watchdog", Case{Signal: syscall.SIGABRT, Shown: []Finding{peer}}, []Kind{PeerLost, PeerLost}},
		{"SIGABRT after an error of its own", Case{Signal: syscall.SIGABRT, Shown: []Finding{own, peer}}, []Kind{Crashed, Exception, PeerLost}},
		{"SIGKILL", Case{Signal: syscall.SIGKILL}, []Kind{Killed}},
		{"SIGKILL, and the kernel tells why", Case{Signal: syscall.SIGKILL, OOM: &oom}, []Kind{OOMKilled, Killed}},
		{"SIGKILL after a peer's end", Case{Signal: syscall.SIGKILL, Shown: []Finding{peer}}, []Kind{Killed, PeerLost}},
		{"SIGTERM from outside", Case{Signal: syscall.SIGTERM}, []Kind{Signalled}},
		{"a shell tells SIGSEGV", Case{Code: 139}, []Kind{Crashed}},
		{"a shell tells SIGKILL", Case{Code: 137}, []Kind{Killed}},
		{"a shell tells SIGABRT, a watchdog's", Case{Code: 134, Shown: []Finding{peer}}, []Kind{PeerLost, PeerLost}},
		{"a code of its own", Case{Code: 200}, []Kind{Exited}},
		{"cannot be executed", Case{Code: 126, Failed: true}, []Kind{NotExecutable}},
		{"does not exist", Case{Code: 127, Failed: true}, []Kind{NotFound}},
		{"a shell cannot execute", Case{Code: 126}, []Kind{NotExecutable}},
		{"a shell cannot find", Case{Code: 127}, []Kind{NotFound}},
		{"Xid", Case{Code: 1, Shown: []Finding{{Xid, at(97), "NVRM"}, own}}, []Kind{Xid, Exception, Exited}},

		{"exit 0", Case{}, nil},
		{"exit 0 after an exception that it had handled", Case{Shown: []Finding{own}}, nil},
		{"exit 0, and then its peers lose it", Case{PeersLost: at(101)}, []Kind{LeftEarly}},
		{"exit 0, seen after its peers had lost it", Case{PeersLost: at(99)}, []Kind{LeftEarly}},
		{"exit 0 after an exception, and then its peers lose it", Case{PeersLost: at(101), Shown: []Finding{own}}, []Kind{LeftEarly, Suspected}},
		{"exit 0 with an error file, and then its peers lose it", Case{PeersLost: at(101), ErrorFile: file("ValueError: no")}, []Kind{ErrorFile, LeftEarly}},
		{"exit 0 of one that had lost a peer", Case{PeersLost: at(99), Shown: []Finding{peer}}, nil},
		{"exit 0 long before its peers give up", Case{PeersLost: at(700)}, []Kind{Absent}},
		{"stopped, alive and silent", Case{Signal: syscall.SIGTERM, Stopped: at(100), PeersLost: at(99)}, []Kind{Absent}},
		{"stopped, alive and silent, and its end is a success", Case{Stopped: at(100), PeersLost: at(99)}, []Kind{Absent}},
		{"stopped, and it had lost a peer, too", Case{Signal: syscall.SIGTERM, Stopped: at(100), PeersLost: at(99), Shown: []Finding{peer}}, nil},
		{"stopped, and it had logged an error", Case{Signal: syscall.SIGTERM, Stopped: at(100), PeersLost: at(99), Shown: []Finding{own}}, []Kind{Suspected}},
		{"stopped, and it had been stopped before", Case{Signal: syscall.SIGKILL, Stopped: at(100), PeersLost: at(99), State: 'T'}, []Kind{Paused}},
		{"stopped before, and it had logged an error", Case{Signal: syscall.SIGKILL, Stopped: at(100), PeersLost: at(99), State: 'T', Shown: []Finding{own}}, []Kind{Paused, Suspected}},
		{"stopped by a debugger before", Case{Signal: syscall.SIGKILL, Stopped: at(100), PeersLost: at(99), State: 't'}, []Kind{Paused}},
		{"stopped before, and nobody has missed it", Case{Signal: syscall.SIGKILL, Stopped: at(100), State: 'T'}, nil},

		{"SIGABRT with a reason on stderr", Case{Signal: syscall.SIGABRT, Last: []string{"free(): invalid pointer"}}, []Kind{Crashed}},
		{"SIGABRT with a reason after a peer's end", Case{Signal: syscall.SIGABRT, Last: []string{"  what():  [gloo] Connection reset by peer"}, Shown: []Finding{peer}}, []Kind{PeerLost, PeerLost}},
		{"SIGABRT with a word of some connection", Case{Signal: syscall.SIGABRT, Last: []string{"  what():  Connection reset by peer"}}, []Kind{Signalled}},
		{"an error file that is known to be of a peer's end", Case{Code: 1, ErrorFile: &Finding{PeerLost, at(98), "RuntimeError: Broken pipe (32)"}}, []Kind{PeerLost}},

		{"stopped", Case{Signal: syscall.SIGTERM, Stopped: at(100)}, nil},
		{"stopped, a handler's exit", Case{Code: 143, Stopped: at(100)}, nil},
		{"stopped by SIGKILL", Case{Signal: syscall.SIGKILL, Stopped: at(100), Shown: []Finding{peer}}, nil},
		{"stopped while it ended with an exception, or had handled one", Case{Signal: syscall.SIGTERM, Stopped: at(100), Shown: []Finding{own}}, []Kind{Suspected}},
		{"died of the stop, and its last words were read late", Case{Signal: syscall.SIGTERM, Stopped: at(98), Shown: []Finding{own}}, []Kind{Suspected}},
		{"stopped, and then an exception before SIGKILL", Case{Signal: syscall.SIGKILL, Stopped: at(98), Shown: []Finding{own}}, nil},
		{"stopped, and then an exception", Case{Code: 1, Stopped: at(98), Shown: []Finding{own}}, nil},
		{"stopped long after an exception", Case{Signal: syscall.SIGTERM, Stopped: at(100), Shown: []Finding{older(own)}}, []Kind{Suspected}},
		{"stopped a while after an exception", Case{Signal: syscall.SIGTERM, Stopped: at(100), Shown: []Finding{old(20, own)}}, []Kind{Suspected}},
		{"stopped a while after its GPU had failed", Case{Signal: syscall.SIGTERM, Stopped: at(100), Shown: []Finding{{Xid, at(80), "NVRM"}}}, []Kind{Xid}},
		{"stopped, and its end is a success", Case{Stopped: at(100)}, nil},
		{"stopped after an exception, and its end is a success", Case{Stopped: at(100), Shown: []Finding{own}}, nil},
		{"stopped long after an exception, and its end is a success", Case{Stopped: at(100), Shown: []Finding{older(own)}}, nil},
		{"stopped with an error file, and its end is a success", Case{Stopped: at(100), ErrorFile: file("ValueError: no"), ErrorWritten: at(98)}, []Kind{ErrorFile}},
		{"stopped, and it crashes", Case{Signal: syscall.SIGSEGV, Stopped: at(98)}, []Kind{Suspected}},
		{"stopped, and it aborts", Case{Signal: syscall.SIGABRT, Stopped: at(98)}, nil},
		{"stopped after a peer's end, and it crashes", Case{Signal: syscall.SIGSEGV, Stopped: at(100), Shown: []Finding{peer}}, nil},
		{"stopped after an exception, and it crashes", Case{Signal: syscall.SIGSEGV, Stopped: at(100), Shown: []Finding{own}}, []Kind{Suspected, Suspected}},
		{"stopped with an error file", Case{Signal: syscall.SIGTERM, Stopped: at(100), ErrorFile: file("ValueError: no"), ErrorWritten: at(98)}, []Kind{ErrorFile}},
		{"stopped long after an error file", Case{Signal: syscall.SIGTERM, Stopped: at(100), ErrorFile: file("ValueError: no"), ErrorWritten: at(30)}, []Kind{Suspected}},
		{"failed after it had handled an error", Case{Code: 1, Shown: []Finding{old(6, own), own}}, []Kind{Exception, Exited, Suspected}},
		{"stopped with a peer's", Case{Signal: syscall.SIGTERM, Stopped: at(100), ErrorFile: file("Connection reset by peer"), ErrorWritten: at(98)}, nil},
		{"stopped, and then an error file", Case{Signal: syscall.SIGTERM, Stopped: at(97), ErrorFile: file("ValueError: no"), ErrorWritten: at(98)}, nil},
		{"stopped with an interrupt's", Case{Signal: syscall.SIGTERM, Stopped: at(100), ErrorFile: file("SignalException: x"), ErrorWritten: at(98)}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.c.At = at(100)
			var got []Kind
			for _, f := range Judge(tt.c) {
				got = append(got, f.Kind)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Evidence is as old as the worker at most, and no younger than its end, whatever a clock or a file server says.
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
				c.ErrorFile, c.ErrorWritten = &Finding{ErrorFile, at(tt.file), "ValueError: no"}, at(tt.file)
			}
			if tt.shown != 0 {
				c.Shown = []Finding{{Exception, at(tt.shown), "ValueError: no"}}
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
		"killed by signal 11 (SIGSEGV), core: /x":                {Signal: syscall.SIGSEGV, Text: "killed by signal 11 (SIGSEGV)", Core: "core: /x"},
		"exited with code 139 (a shell's way to tell signal 11)": {Code: 139, Text: "exited with code 139"},
		"exited with code 126: a command could not be executed":  {Code: 126, Text: "exited with code 126"},
		"could not be executed: no":                              {Code: 127, Failed: true, Text: "could not be executed: no"},
		"exited with code 1; its last line on stderr: no data":   {Code: 1, Text: "exited with code 1", Last: []string{"step 1", "no data", ""}},
		"exited with code 127: a command, or a library it needs, was not found; its last line on stderr: sh: 1: trane: not found": {
			Code: 127, Text: "exited with code 127", Last: []string{"sh: 1: trane: not found"},
		},
		"killed by signal 6 (SIGABRT): Check failed: a == b": {Signal: syscall.SIGABRT, Text: "killed by signal 6 (SIGABRT)", Last: []string{"F0312 10:00:00 1 loss.cc:42] Check failed: a == b"}},
		"killed by signal 6 (SIGABRT): ValueError: boom":     {Signal: syscall.SIGABRT, Text: "killed by signal 6 (SIGABRT)", Shown: []Finding{{Exception, time.Time{}, "ValueError: boom"}}},
		"exited with code 0 while its peers were still communicating, after ValueError: boom": {
			At: at(100), PeersLost: at(100), Shown: []Finding{{Exception, at(100), "ValueError: boom"}},
		},
		"had exited with code 0 10m0s before its peers gave up waiting": {At: at(100), PeersLost: at(700)},
	} {
		if got := Judge(c)[0].Text; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestEarliest(t *testing.T) {
	all := []Finding{{ErrorFile, at(9), ""}, {Exception, at(7), ""}, {Exited, at(8), ""}, {PeerLost, at(1), ""}}
	if got := Earliest(all); !got.Equal(at(7)) {
		t.Errorf("%v", got)
	}
	if got := Earliest([]Finding{{Kind: Exited}}); !got.IsZero() || !Earliest(nil).IsZero() {
		t.Errorf("no time is %v", got)
	}
}

func TestGrades(t *testing.T) {
	for kind, want := range map[Kind]int{
		OOMKilled: GradeCrash, Killed: GradeCrash, Crashed: GradeCrash, Signalled: GradeOwnFault, Exited: GradeOwnFault, Xid: GradeOwnFault, Fatal: GradeOwnFault,
		LeftEarly: GradeGone, Paused: GradeGone, Suspected: GradeSuspected, PeerLost: GradePeer, Absent: GradePeer,
	} {
		if got := kind.Grade(); got != want {
			t.Errorf("%s has grade %d", kind, got)
		}
	}
}
