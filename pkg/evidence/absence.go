package evidence

import (
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/failure"
)

// succeeded reports whether the worker exited with 0.
func (c *Case) succeeded() bool { return c.Signal == 0 && c.Code == 0 && !c.Failed }

// leftEarly judges a worker that exited with 0 by itself while its peers lost a peer. own are errors of its own, which
// it survived. peer says that it had lost a peer itself.
func (c *Case) leftEarly(own []failure.Finding, peer bool) []failure.Finding {
	if peer {
		return nil
	}
	f := failure.Finding{
		Kind: failure.LeftEarly, Time: c.At,
		Text: "exited with code 0 while its peers were still communicating",
	}
	if before := c.PeersLost.Sub(c.At); before > soon { // its peers would have lost a connection at once
		f = failure.Finding{
			Kind: failure.Absent, Time: c.PeersLost,
			Text: fmt.Sprintf("had exited with code 0 %s before its peers gave up waiting",
				seconds.Format(before.Round(time.Second))),
		}
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

// absent judges a worker that the launcher stopped and that had not lost a peer, while its peers lost one. It returns a
// finding without a kind if there is no evidence. own says that the worker had shown errors of its own.
func (c *Case) absent(own bool) failure.Finding {
	switch {
	case c.PeersLost.IsZero():
	case c.State == 'T':
		return finding(failure.Paused, c.PeersLost, "was stopped by a signal (state T) when its peers lost it")
	case c.State == 't':
		return finding(failure.Paused, c.PeersLost, "was held by a debugger (state t) when its peers lost it")
	case own:
	case c.State == 'D':
		return finding(failure.Absent, c.PeersLost,
			"was alive and silent, in uninterruptible sleep (state D), when its peers gave up waiting")
	default:
		return finding(failure.Absent, c.PeersLost,
			"was alive and silent when its peers gave up waiting: it hangs, or is too slow")
	}
	return failure.Finding{}
}
