package backends

import (
	"context"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// CloseRun closes the run for all nodes. by names who asks, in words for people. The error is an [*rdzv.EndedError] if
// the run had ended before or ended in another way, and [elastic.ErrNotJoined] if only this node ends. Workers may
// still be stopping when it returns.
func (r *Rendezvous) CloseRun(ctx context.Context, by string) error {
	known, _ := r.Handler.(interface{ Outcome() *rdzv.Outcome })
	if known != nil {
		if o := known.Outcome(); o != nil {
			return &rdzv.EndedError{Outcome: *o}
		}
	}
	if err := r.Handler.SetClosed(ctx, by); err != nil {
		return err
	}
	if known != nil {
		if o := known.Outcome(); o != nil && o.Ending != rdzv.EndClosed {
			return &rdzv.EndedError{Outcome: *o}
		}
	}
	return nil
}
