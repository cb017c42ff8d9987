package membership

import (
	"context"
	"crypto/rand"
	"strconv"
	"time"
)

// A member that cannot be reached is asked by the store. Who asks sets pokeKey of its incarnation, which wakes the member on every server; the
// member deletes that, which is the answer, and sets aliveKey, which only wakes up who waits. Any number may ask at once: a question
// that takes another's place is no answer, but the time begins anew, since the member may have answered in between; and each who
// asks sets one.
//
// A question to one that is no member any more has no answer, so who asks finds it gone, and forgets it. What is left over are
// the two keys of a member that goes while somebody asks that dies or is closed itself before it knows.
const (
	queryKey = "poke/"
	replyKey = "alive/"
)

func queryKeyOf(incarnation uint64) string { return queryKey + strconv.FormatUint(incarnation, 16) }
func replyKeyOf(incarnation uint64) string { return replyKey + strconv.FormatUint(incarnation, 16) }

// ask tells whether a member answers by the store. Only time in which the store answers here counts against it.
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
		// What we were woken by may be the answer to an earlier question; then the next wait must not see it.
		if _, err := d.store.Delete(ctx, replyKey); err != nil {
			return false, err
		}
	}
}

// answer answers who asks for this member, until ctx ends.
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

// forget deletes what questions to one that is no member any more have left.
func (d *Dynamic) deleteQueryKeys(ctx context.Context, incarnation uint64) {
	for _, key := range []string{queryKeyOf(incarnation), replyKeyOf(incarnation)} {
		if _, err := d.store.Delete(ctx, key); err != nil {
			d.opts.Logger.Debug().Err(err).Msg("keys of a former member stay in the group's store")
			return
		}
	}
}
