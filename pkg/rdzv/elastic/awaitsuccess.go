package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// successWait is how long an agent that is told to leave the exit barrier waits until its success is recorded. The
// leader does that within milliseconds, if there is one.
const successWait = time.Second

// awaitSuccess waits until the leader has recorded that a member has succeeded. Its session may end then.
func (d *driver) awaitSuccess(ctx context.Context, round, rank int) {
	ctx, cancel := context.WithTimeout(ctx, successWait)
	defer cancel()
	key := d.prefix + rounds.SuccessKey(round, rank)
	err := d.store.Watch(ctx, key, func(b coord.Batch) error {
		for _, e := range b.Events {
			if s := new(rounds.Successes); e.Key == key && json.Unmarshal(e.Value, s) == nil && s.Has(rank) {
				return errListed
			}
		}
		return nil
	})
	if !errors.Is(err, errListed) {
		d.log.Debug().Err(err).Msg("no leader has recorded that this node has succeeded: the others may run again")
	}
}
