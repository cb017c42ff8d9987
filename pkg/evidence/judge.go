package evidence

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
)

const (
	// recent is how long before its end a worker may have written what ended it. An older error it has lived with: it was logged and went
	// by, or the worker hung from then on.
	recent = time.Minute
	// soon is the same for an error before the worker lost its peer, or was stopped, which may have ended it just as well.
	soon = 10 * time.Second
	// burst is how long the last error takes, which may have several lines: what was shown before it was lived with.
	burst = 2 * time.Second
)

// Case is all that is known of a worker that did not end with success.
type Case struct {
	Code   int            // 0 where a signal ended it
	Signal syscall.Signal // 0 where it exited by itself
	At     time.Time      // when that was seen
	Began  time.Time      // when it was started. No evidence is older than that, or younger than At, whatever a clock says.
	// Text tells the end in words, for the kinds that follow from it.
	Text string
	// Failed says that it could not be executed.
	Failed bool
	// Core says where its memory is; empty for nowhere.
	Core string
	// Stopped is when the launcher began to stop it, if it was running then; else zero.
	Stopped time.Time
	// ErrorFile tells of its error file: when it failed, and its message; ErrorWritten when that was written. nil for none.
	ErrorFile    *failure.Finding
	ErrorWritten time.Time
	// Shown is what it had shown before: on its stderr, and of its GPU.
	Shown []failure.Finding
	// Last are the last lines of its stderr.
	Last []string
	// State is that of its process when the launcher began to stop it, as in proc(5); 0 where it is not known.
	State byte
	// PeersLost is when the first of its peers said that it had lost one, or was known to have failed; zero if none has.
	PeersLost time.Time
	// OOM says that the OOM killer took it; nil if it did not. Where it was stopped nobody knows.
	OOM *failure.Finding
}

// Judge weighs the evidence and returns it, strongest first. Of a worker that the launcher stopped it returns what it had shown before
// that began, and of one that exited with 0 nothing unless its peers lost it; nothing means that it is not to blame.
func Judge(c Case) []failure.Finding {
	if c.inOrder() && c.Stopped.IsZero() && c.PeersLost.IsZero() {
		return nil
	}
	own, suspected, peer := c.shown()
	all := slices.Clone(own)
	if f := c.ErrorFile; f != nil {
		switch at := c.within(f.Time); {
		case f.Kind == failure.PeerLost || PeerError(f.Text):
			peer = append(peer, finding(failure.PeerLost, at, f.Text))
		case c.Stopped.IsZero() || !Interrupted(f.Text) && !c.ErrorWritten.After(c.Stopped):
			kind := failure.ErrorFile
			if !c.Stopped.IsZero() && c.Stopped.Sub(c.ErrorWritten) > recent { // it went on
				kind = failure.Suspected
			}
			all = append(all, finding(kind, at, f.Text))
		}
	}
	switch {
	case c.inOrder() && c.Stopped.IsZero():
		all = c.left(all, len(peer) > 0)
	case c.Stopped.IsZero():
		all = append(all, c.end(all, len(peer) > 0))
		all = append(all, peer...)
		if c.OOM != nil {
			all = append(all, *c.OOM)
		}
		all = append(all, suspected...)
	case c.inOrder(): // so what it had lived with was nothing
	case crash(c.Signal) && c.Signal != syscall.SIGABRT && len(peer) == 0: // no stop sends that; but the end of a process group may crash, and aborts often
		suspected = append(suspected, finding(failure.Suspected, c.At, c.Text+", while it was being stopped"))
		fallthrough
	default:
		all = append(all, suspected...)
	}
	if !c.Stopped.IsZero() && len(peer) == 0 {
		all = append(all, c.missed(len(all) > 0))
	}
	all = slices.DeleteFunc(all, func(f failure.Finding) bool { return f.Kind == "" })
	slices.SortStableFunc(all, func(a, b failure.Finding) int {
		return cmp.Or(cmp.Compare(a.Kind.Grade(), b.Kind.Grade()), cmp.Compare(weight(a.Kind), weight(b.Kind)), a.Time.Compare(b.Time))
	})
	return all
}

// shown sorts what the worker showed before it ended, or was stopped: errors of its own, those that are too old to have ended it, and
// what it says of peers.
func (c *Case) shown() (own, suspected, peer []failure.Finding) {
	end := c.At
	if !c.Stopped.IsZero() {
		end = c.Stopped
	}
	var lost, last time.Time // its peer, and an error of its own, the last time
	for _, f := range c.Shown {
		switch {
		case f.Kind == failure.PeerLost && f.Time.After(lost):
			lost = f.Time
		case f.Kind != failure.PeerLost && f.Time.After(last) && !f.Time.After(end):
			last = f.Time
		}
	}
	for _, f := range c.Shown {
		f.Time = c.within(f.Time)
		late, old := f.Time.After(end), end.Sub(f.Time) > recent
		// One that was stopped may have logged an error that it had handled: that weighs more than a lost peer, and less than an end of its own.
		lived := f.Kind != failure.Xid && (lost.Sub(f.Time) > soon || last.Sub(f.Time) > burst || !c.Stopped.IsZero())
		switch {
		case late && !c.Stopped.IsZero() && c.Signal != syscall.SIGTERM: // of which one dies without a word, so it had spoken before
		case f.Kind == failure.PeerLost && !old:
			peer = append(peer, f)
		case f.Kind == failure.PeerLost:
		case old, lived:
			suspected = []failure.Finding{{Kind: failure.Suspected, Time: f.Time, Text: f.Text}} // the last
		default:
			own = append(own, f)
		}
	}
	return own, suspected, peer
}

// within is the time, or the nearest one at which the worker lived: clocks are set, and file servers have their own.
func (c *Case) within(t time.Time) time.Time {
	switch {
	case t.IsZero(): // not known
	case t.Before(c.Began):
		return c.Began
	case t.After(c.At) && !c.At.IsZero():
		return c.At
	}
	return t
}

// end says what follows from how the worker ended by itself, if anything. shown is what it says of errors of its own, peer that it speaks of a
// lost peer.
func (c *Case) end(shown []failure.Finding, peer bool) failure.Finding {
	own := len(shown) > 0
	f := failure.Finding{Time: c.At, Text: c.Text}
	signal := c.Signal
	if signal == 0 && c.Code > 128 && c.ErrorFile == nil { // a shell that ran the worker tells the signal so
		signal = syscall.Signal(c.Code - 128)
		if !crash(signal) && signal != syscall.SIGKILL {
			signal = 0
		} else {
			f.Text += fmt.Sprintf(" (a shell's way to tell signal %d)", int(signal))
		}
	}
	switch {
	case c.Failed && c.Code == 127:
		f.Kind = failure.NotFound
	case c.Failed:
		f.Kind = failure.NotExecutable
	case crash(signal):
		if signal == syscall.SIGABRT && (own || !peer) {
			if reason := abortedBy(shown, c.Last); reason != "" {
				f.Text, own = tidy(f.Text+": "+reason), own || !networkWords().MatchString(reason) // of whose connection nobody knows
			}
		}
		switch {
		case peer && !own: // NCCL's watchdog aborts, and the end of a process group may crash
			f.Kind = failure.PeerLost
		case signal == syscall.SIGABRT && !own:
			f.Kind = failure.Signalled
		default:
			f.Kind = failure.Crashed
		}
		if c.Core != "" {
			f.Text += ", " + c.Core
		}
	case signal == syscall.SIGKILL:
		f.Kind = failure.Killed
	case signal != 0:
		f.Kind = failure.Signalled
	case peer && !own:
		return failure.Finding{}
	default:
		return c.exited(f, own)
	}
	return f
}

// exited is f of a worker that exited with a code of its own. own says that there is better evidence than its last word.
func (c *Case) exited(f failure.Finding, own bool) failure.Finding {
	switch c.Code {
	case 126:
		f.Kind, f.Text = failure.NotExecutable, f.Text+": a command could not be executed"
	case 127:
		f.Kind, f.Text = failure.NotFound, f.Text+": a command, or a library it needs, was not found"
	default:
		f.Kind = failure.Exited
	}
	if word := lastWord(c.Last); word != "" && !own {
		f.Text = tidy(f.Text + "; its last line on stderr: " + word)
	}
	return f
}

func crash(s syscall.Signal) bool {
	switch s {
	case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGABRT, syscall.SIGILL, syscall.SIGFPE, syscall.SIGTRAP, syscall.SIGSYS:
		return true
	}
	return false
}

// weight orders the kinds of one grade: what tells more comes first.
func weight(k failure.Kind) int {
	switch k {
	case failure.OOMKilled, failure.ErrorFile:
		return 0
	case failure.Exited:
		return 2
	default:
		return 1
	}
}

// Earliest is when the strongest evidence says that it happened: the first time among the findings of the first one's grade. It is zero where
// there is none.
func Earliest(findings []failure.Finding) (first time.Time) {
	for _, f := range findings {
		if f.Kind.Grade() == findings[0].Kind.Grade() && !f.Time.IsZero() && (first.IsZero() || f.Time.Before(first)) {
			first = f.Time
		}
	}
	return first
}

func finding(k failure.Kind, at time.Time, text string) failure.Finding {
	return failure.Finding{Kind: k, Time: at, Text: text}
}
