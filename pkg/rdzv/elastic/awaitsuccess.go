package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// successWait is how long an agent that has to leave the exit barrier, for example after SIGTERM, waits until its
// success is recorded. A leader records it within milliseconds.
const successWait = time.Second

// awaitSuccess waits until the leader has recorded that a member has succeeded. From then on the member's session may
// end.
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
