package failure

import (
	"syscall"
	"testing"
)

func TestSignature(t *testing.T) {
	nan := Failure{Kind: Exception, ExitCode: 1, Summary: "ValueError: loss is nan at step 1003"}
	change := func(change func(*Failure)) Failure {
		f := nan
		change(&f)
		return f
	}
	for _, tt := range []struct {
		name  string
		other Failure
		same  bool
	}{
		{"itself", nan, true},
		{"another step", change(func(f *Failure) { f.Summary = "ValueError: loss is nan at step 7" }), true},
		{"another rank, host and time", change(func(f *Failure) { f.GlobalRank, f.Host, f.PID = 3, "node3", 99 }), true},
		{"another message", change(func(f *Failure) { f.Summary = "ValueError: loss is inf at step 1003" }), false},
		{"another code", change(func(f *Failure) { f.ExitCode = 2 }), false},
		{"a signal", change(func(f *Failure) { f.Signal = syscall.SIGABRT }), false},
		{"another kind", change(func(f *Failure) { f.Kind = ErrorFile }), false},
	} {
		if same := nan.Signature() == tt.other.Signature(); same != tt.same {
			t.Errorf("%s: same %v: %q and %q", tt.name, same, nan.Signature(), tt.other.Signature())
		}
	}
	for _, kind := range []Kind{PeerLost, Absent, LeftEarly, Paused, Suspected} {
		if s := (Failure{Kind: kind, ExitCode: 1}).Signature(); s != "" {
			t.Errorf("%s: %q", kind, s)
		}
	}
	if got := maskNumbers("0x7f3Ab: 12 of 3.5e10 at 0xg, café 9"); got != "#: # of #.#e# at #g, café #" {
		t.Errorf("%q", got)
	}
}
