package evidence

import (
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
)

// inOrder says that the worker's end was a success.
func (c *Case) inOrder() bool { return c.Signal == 0 && c.Code == 0 && !c.Failed }

// left says what is to be thought of a worker that exited with 0 by itself, and whose peers had lost somebody. own is what it had shown of errors of
// its own, which did not keep it from a success; peer that it had lost a peer itself.
func (c *Case) left(own []failure.Finding, peer bool) []failure.Finding {
	if peer {
		return nil
	}
	f := failure.Finding{Kind: failure.LeftEarly, Time: c.At, Text: "exited with code 0 while its peers were still communicating"}
	if before := c.PeersLost.Sub(c.At); before > soon { // a connection that it had would have been lost at once
		f = failure.Finding{Kind: failure.Absent, Time: c.PeersLost, Text: fmt.Sprintf("had exited with code 0 %v before its peers gave up waiting", before.Round(time.Second))}
	}
	all := []failure.Finding{f}
	for _, shown := range own {
		if shown.Kind != failure.ErrorFile {
			shown.Kind = failure.Suspected
		}
		all = append(all, shown)
		all[0].Text = tidy(f.Text + ", after " + shown.Text)
	}
	return all
}

// missed says what is to be thought of a worker that the launcher stopped, that had not lost a peer, and whose peers had lost one; a finding
// without a kind for nothing. own says that it had shown errors of its own.
func (c *Case) missed(own bool) failure.Finding {
	switch {
	case c.PeersLost.IsZero():
	case c.State == 'T':
		return finding(failure.Paused, c.PeersLost, "was stopped by a signal (state T) when its peers lost it")
	case c.State == 't':
		return finding(failure.Paused, c.PeersLost, "was held by a debugger (state t) when its peers lost it")
	case own:
	case c.State == 'D':
		return finding(failure.Absent, c.PeersLost, "was alive and silent, in uninterruptible sleep (state D), when its peers gave up waiting")
	default:
		return finding(failure.Absent, c.PeersLost, "was alive and silent when its peers gave up waiting: it hangs, or is too slow")
	}
	return failure.Finding{}
}
