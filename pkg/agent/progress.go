package agent

import (
	"context"
	"time"
)

// DefaultProgressAfter is how long some workers have been done when the agent first shows where the others are. The
// next waits are twice as long each, up to maxProgressWait.
const (
	DefaultProgressAfter = 30 * time.Second
	maxProgressWait      = 5 * time.Minute
)

// progress shows at growing intervals where the workers are that have not finished. The zero value has not begun.
type progress struct {
	stop func() // nil: not begun
}

// begin begins to show where the workers of this node are or, with elsewhere, the workers of all nodes. It does nothing
// if it was called before or Options.Stacks is nil.
func (p *progress) begin(ctx context.Context, o *Options, elsewhere bool) {
	if o.Stacks == nil || p.stop != nil {
		return
	}
	wait := o.ProgressAfter
	if wait <= 0 {
		wait = DefaultProgressAfter
	}
	p.stop = inBackground(ctx, func(ctx context.Context) {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			o.Stacks.ShowProgress(ctx, elsewhere)
			wait = min(2*wait, maxProgressWait)
			timer.Reset(wait)
		}
	})
}

func (p *progress) end() {
	if p.stop != nil {
		p.stop()
	}
}
