package elastic

import (
	"context"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// reportWait passes on what this node waits for; empty if it is not known.
func (h *Handler) reportWait(why string) {
	if h.opts.Waiting != nil {
		h.opts.Waiting(why)
	}
}

// openStore opens a session in the job's store, and reports that this node waits for the store.
func (h *Handler) openStore(ctx context.Context) (coord.Store, error) {
	why := "the job's store has not been reached yet"
	if deadline, ok := ctx.Deadline(); ok {
		why += "; this node gives up in " + rounds.FormatLeft(time.Until(deadline))
	}
	h.reportWait(why)
	store, err := h.opts.Access.Open(ctx)
	if err == nil {
		h.reportWait("")
	}
	return store, err
}
