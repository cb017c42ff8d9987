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
	// Recent is how long before its end a worker may have written the error that ended it. It survived an older error:
	// either it only logged the error, or it hung from then on.
	Recent = time.Minute
	// soon is the same limit for a worker that also lost its peer or was stopped, which may have ended it just as well.
	soon = 10 * time.Second
	// burst is how long the lines of the last error may take. The worker survived what it wrote before them.
	burst = 2 * time.Second
)

// Case is everything that is known about a worker that has ended.
type Case struct {
	Code   int            // 0 if a signal ended it
	Signal syscall.Signal // 0 if it exited by itself
	At     time.Time      // when the end was seen
	Began  time.Time      // when it was started; evidence is dated between Began and At even if clocks disagree
	// Text describes the end, for the kinds that follow from it.
	Text string
	// Failed says that the program could not be executed.
	Failed bool
	// Core says where its memory was dumped; empty for nowhere.
	Core string
	// Stopped is when the launcher began to stop it, if it was running then; zero otherwise.
	Stopped time.Time
	// ErrorFile has the time and message of its error file; nil for none. ErrorWritten is when the file was written.
	ErrorFile    *failure.Finding
	ErrorWritten time.Time
	// Shown is what was found on its stderr, and about its GPU.
	Shown []failure.Finding
	// Last are the last lines of its stderr.
	Last []string
	// State is the state of its process when the launcher began to stop it, as in proc(5); 0 if unknown.
	State byte
	// PeersLost is when the first of its peers reported a lost peer, or was known to have failed; zero if none has.
	PeersLost time.Time
	// OOM says that the OOM killer killed it; nil if it did not, or if the worker was stopped, because then that is not
	// known.
	OOM *failure.Finding
	// AboutOOM ends the text about a SIGKILL for which OOM is nil.
	AboutOOM string
}

// Judge weighs the evidence and returns it, strongest first. A worker without findings is not to blame. For a worker
// that the launcher stopped, only what it had shown before the stop counts. A worker that exited with 0 has no findings
// unless its peers lost it.
func Judge(c Case) []failure.Finding {
	if c.succeeded() && c.Stopped.IsZero() && c.PeersLost.IsZero() {
		return nil
	}
	own, suspected, peer := c.shown()
	all := slices.Clone(own)
	if f := c.ErrorFile; f != nil {
		switch at := c.within(f.Time); {
		case f.Kind == failure.PeerLost || peerError(f.Text):
			peer = append(peer, finding(failure.PeerLost, at, f.Text))
		case c.Stopped.IsZero() || !interrupted(f.Text) && !c.ErrorWritten.After(c.Stopped):
			kind := failure.ErrorFile
			if !c.Stopped.IsZero() && c.Stopped.Sub(c.ErrorWritten) > Recent { // it survived the error
				kind = failure.Suspected
			}
			all = append(all, finding(kind, at, f.Text))
		}
	}
	switch {
	case c.succeeded() && c.Stopped.IsZero():
		all = c.leftEarly(all, len(peer) > 0)
	case c.Stopped.IsZero():
		all = append(all, c.end(all, len(peer) > 0))
		all = append(all, peer...)
		if c.OOM != nil {
			all = append(all, *c.OOM)
		}
		all = append(all, suspected...)
	case c.succeeded(): // errors that it survived do not count
	case crash(c.Signal) && c.Signal != syscall.SIGABRT && len(peer) == 0:
		// a stop sends no such signal; the end of a process group may crash, and often aborts
		suspected = append(suspected, finding(failure.Suspected, c.At, c.Text+", while it was being stopped"))
		fallthrough
	default:
		all = append(all, suspected...)
	}
	switch {
	case c.Stopped.IsZero():
	case len(peer) == 0:
		all = append(all, c.absent(len(all) > 0))
	case len(all) > 0: // a lost peer alone is nothing to report of a worker that was stopped
		all = append(all, peer...)
	}
	all = slices.DeleteFunc(all, func(f failure.Finding) bool { return f.Kind == "" })
	slices.SortStableFunc(all, func(a, b failure.Finding) int {
		return cmp.Or(cmp.Compare(a.Kind.Grade(), b.Kind.Grade()), cmp.Compare(weight(a.Kind), weight(b.Kind)),
			a.Time.Compare(b.Time))
	})
	return all
}

// shown sorts what the worker showed before it ended or was stopped: errors of its own, errors that are too old to have
// ended it, and reports about peers.
func (c *Case) shown() (own, suspected, peer []failure.Finding) {
	end := c.At
	if !c.Stopped.IsZero() {
		end = c.Stopped
	}
	var lost, last time.Time // of the last lost peer, and of the last error of its own
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
		late, old := f.Time.After(end), end.Sub(f.Time) > Recent
		// A worker that was stopped may have logged an error that it had handled. That weighs more than a lost peer, and less
		// than an end of its own.
		survived := f.Kind != failure.Xid && (lost.Sub(f.Time) > soon || last.Sub(f.Time) > burst || !c.Stopped.IsZero())
		switch {
		case late && !c.Stopped.IsZero() && c.Signal != syscall.SIGTERM:
			// SIGTERM ends a worker without output, so the output came before it
		case f.Kind == failure.PeerLost && !old:
			peer = append(peer, f)
		case f.Kind == failure.PeerLost:
		case old, survived:
			suspected = []failure.Finding{{Kind: failure.Suspected, Time: f.Time, Text: f.Text}} // only the last one
		default:
			own = append(own, f)
		}
	}
	return own, suspected, peer
}

// within returns t, limited to the time in which the worker lived. Clocks may be adjusted, and file servers have their
// own.
func (c *Case) within(t time.Time) time.Time {
	switch {
	case t.IsZero(): // unknown
	case t.Before(c.Began):
		return c.Began
	case t.After(c.At) && !c.At.IsZero():
		return c.At
	}
	return t
}

// end returns the finding that follows from how the worker ended by itself; without a kind if there is none. shown are
// errors of its own. peer says that it reports a lost peer.
func (c *Case) end(shown []failure.Finding, peer bool) failure.Finding {
	own := len(shown) > 0
	f := failure.Finding{Time: c.At, Text: c.Text}
	signal := c.Signal
	if signal == 0 && c.Code > 128 && c.ErrorFile == nil { // a shell that ran the worker encodes the signal this way
		signal = syscall.Signal(c.Code - 128)
		if !crash(signal) && signal != syscall.SIGKILL {
			signal = 0
		} else {
			f.Text += fmt.Sprintf(" (a shell's code for signal %d)", int(signal))
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
				f.Text = tidy(f.Text + ": " + reason)
				own = own || !networkWords().MatchString(reason) && !namesNoFault(reason) // it may be any connection
			}
		}
		switch {
		case peer && !own: // NCCL's watchdog aborts, and the end of a process group may crash
			f.Kind = failure.PeerLost
		case signal == syscall.SIGABRT && !own:
			f.Kind = failure.Signaled
		default:
			f.Kind = failure.Crashed
		}
		if c.Core != "" {
			f.Text += ", " + c.Core
		}
	case signal == syscall.SIGKILL:
		f.Kind = failure.Killed
		if c.OOM == nil {
			f.Text += c.AboutOOM
		}
	case signal != 0:
		f.Kind = failure.Signaled
	case peer && !own:
		return failure.Finding{}
	default:
		return c.exited(f, own)
	}
	return f
}

// exited completes f for a worker that exited with a code of its own. own says that there is better evidence than its
// last line.
func (c *Case) exited(f failure.Finding, own bool) failure.Finding {
	switch c.Code {
	case 126:
		f.Kind, f.Text = failure.NotExecutable, f.Text+": a command could not be executed"
	case 127:
		f.Kind, f.Text = failure.NotFound, f.Text+": a command, or a library it needs, was not found"
	default:
		f.Kind = failure.Exited
	}
	if own {
		return f
	}
	return withLastLine(f, c.Last)
}

func crash(s syscall.Signal) bool {
	switch s {
	case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGABRT, syscall.SIGILL, syscall.SIGFPE, syscall.SIGTRAP, syscall.SIGSYS:
		return true
	}
	return false
}

// weight orders kinds of the same grade: the more specific one comes first.
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

// Earliest returns when the failure happened according to the strongest evidence: the first time among the findings
// with the grade of findings[0]. It is zero if there is none.
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
