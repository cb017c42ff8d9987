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
	pokeKey  = "poke/"
	aliveKey = "alive/"
)

func pokeOf(incarnation uint64) string  { return pokeKey + strconv.FormatUint(incarnation, 16) }
func aliveOf(incarnation uint64) string { return aliveKey + strconv.FormatUint(incarnation, 16) }

// ask tells whether a member answers by the store. Only time in which the store answers here counts against it.
func (d *Dynamic) ask(ctx context.Context, incarnation uint64) (bool, error) {
	poke, alive := pokeOf(incarnation), aliveOf(incarnation)
	if _, err := d.store.Delete(ctx, alive); err != nil {
		return false, err
	}
	if err := d.store.Set(ctx, poke, []byte(rand.Text())); err != nil {
		return false, err
	}
	still := stillness{slice: sliceOf(d.opts.Patience, 4)}
	for {
		asked := time.Now()
		now, err := d.log.peek(ctx, poke)
		if err != nil || now == nil {
			return err == nil, err
		}
		if still.see(string(now), asked, time.Now()) >= d.opts.Patience {
			return false, nil
		}
		if err := awaitKey(ctx, d.store, alive, still.slice); err != nil {
			return false, err
		}
		// What we were woken by may be the answer to an earlier question; then the next wait must not see it.
		if _, err := d.store.Delete(ctx, alive); err != nil {
			return false, err
		}
	}
}

// answer answers who asks for this member, until ctx ends.
func (d *Dynamic) answer(ctx context.Context) {
	poke, alive := pokeOf(d.self.Incarnation), aliveOf(d.self.Incarnation)
	again := backoff{most: d.opts.Patience / 4}
	for ctx.Err() == nil {
		_, err := d.store.Get(ctx, poke)
		if err == nil {
			_, err = d.store.Delete(ctx, poke)
		}
		if err == nil {
			err = d.store.Set(ctx, alive, []byte{'1'})
		}
		if err != nil {
			again.pause(ctx)
			continue
		}
		again.reset()
	}
}

// forget deletes what questions to one that is no member any more have left.
func (d *Dynamic) forget(ctx context.Context, incarnation uint64) {
	for _, key := range []string{pokeOf(incarnation), aliveOf(incarnation)} {
		if _, err := d.store.Delete(ctx, key); err != nil {
			d.opts.Logger.Debug().Err(err).Msg("keys of a former member stay in the group's store")
			return
		}
	}
}
