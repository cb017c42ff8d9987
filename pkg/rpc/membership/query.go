package membership

import (
	"context"
	"crypto/rand"
	"strconv"
	"time"
)

// A member that cannot be reached is queried through the store. The querier sets the query key of the member's
// incarnation, which wakes the member on every kind of server. The member deletes that key, which is its reply, and
// sets the reply key, which only wakes the querier.
//
// Several members may query at once, and each sets the query key once. If another query replaces the value, that is no
// reply, but the timeout starts again, because the member may have replied in between.
//
// A former member does not reply. The querier then finds it gone and deletes the keys. Two keys remain if the member
// leaves during a query and the querier dies or is closed before it finds out.
const (
	queryKeyPrefix = "poke/"
	replyKeyPrefix = "alive/"
)

func queryKeyOf(incarnation uint64) string {
	return queryKeyPrefix + strconv.FormatUint(incarnation, 16)
}

func replyKeyOf(incarnation uint64) string {
	return replyKeyPrefix + strconv.FormatUint(incarnation, 16)
}

// query reports whether a member replies through the store. Only time in which the store responds here counts against
// the member.
func (d *Dynamic) query(ctx context.Context, incarnation uint64) (bool, error) {
	queryKey, replyKey := queryKeyOf(incarnation), replyKeyOf(incarnation)
	if _, err := d.store.Delete(ctx, replyKey); err != nil {
		return false, err
	}
	if err := d.store.Set(ctx, queryKey, []byte(rand.Text())); err != nil {
		return false, err
	}
	unchanged := staleness{maxGap: fractionOf(d.opts.ReplyTimeout, 4)}
	for {
		asked := time.Now()
		now, err := d.log.peek(ctx, queryKey)
		if err != nil || now == nil {
			return err == nil, err
		}
		if unchanged.observe(string(now), asked, time.Now()) >= d.opts.ReplyTimeout {
			return false, nil
		}
		if err := waitKey(ctx, d.store, replyKey, unchanged.maxGap); err != nil {
			return false, err
		}
		// The wake-up may belong to an earlier query. The next wait must not see that key.
		if _, err := d.store.Delete(ctx, replyKey); err != nil {
			return false, err
		}
	}
}

// answerQueries replies to queries for this member until ctx ends.
func (d *Dynamic) answerQueries(ctx context.Context) {
	queryKey, replyKey := queryKeyOf(d.self.Incarnation), replyKeyOf(d.self.Incarnation)
	retry := backoff{limit: d.opts.ReplyTimeout / 4}
	for ctx.Err() == nil {
		_, err := d.store.Get(ctx, queryKey)
		if err == nil {
			_, err = d.store.Delete(ctx, queryKey)
		}
		if err == nil {
			err = d.store.Set(ctx, replyKey, []byte{'1'})
		}
		if err != nil {
			retry.pause(ctx)
			continue
		}
		retry.reset()
	}
}

// deleteQueryKeys deletes the keys that queries for a former member left.
func (d *Dynamic) deleteQueryKeys(ctx context.Context, incarnation uint64) {
	for _, key := range []string{queryKeyOf(incarnation), replyKeyOf(incarnation)} {
		if _, err := d.store.Delete(ctx, key); err != nil {
			d.opts.Logger.Debug().Err(err).Msg("keys of a former member could not be deleted from the group's store")
			return
		}
	}
}
