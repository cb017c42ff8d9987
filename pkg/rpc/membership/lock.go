package membership

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

const (
	lockKey = "lock"
	// releasedKey, with the turn, is set when the lock is released, for those who wait for it.
	releasedKey = "released/"
	// releasedKept is for how many turns such a key stays. A waiter needs that of the last turn; the others are there so that one that is
	// set late is deleted all the same.
	keptReleases = 8
)

// lock is the membership lock, by which joins and leaves of a dynamic group come one after another. Its holder renews it
// every third of the silence; one that does not is taken for dead, and who waits takes the lock away. That is no proof: a holder that wakes up
// later goes on. So nothing may depend on the lock but the order: what the holder decides, it commits to the log, where
// only one can be next.
type lock struct {
	store          kvstore.Store
	self           uint64
	timeout        time.Duration
	releaseTimeout time.Duration // for a release that outlives its context
	log            zerolog.Logger
}

func (l lock) renewInterval() time.Duration { return fractionOf(l.timeout, 3) }

// holding is the value of the lock.
type lockState struct {
	turn    uint64 // rises with each holder
	owner   uint64 // an incarnation; 0: nobody, the lock was released
	counter uint64 // rises with each renewal
}

func (h lockState) String() string { return fmt.Sprintf("%d %x %d", h.turn, h.owner, h.counter) }

// parseHolding reads what String writes, and nothing as the value before the first holder.
func parseLockState(text string) (lockState, error) {
	if text == "" {
		return lockState{}, nil
	}
	var h lockState
	n, err := fmt.Sscanf(text, "%d %x %d", &h.turn, &h.owner, &h.counter)
	if err != nil || n != 3 || h.String() != text {
		return lockState{}, fmt.Errorf("key %q of the group's store holds %q, which is no membership lock: another program writes there", lockKey, text)
	}
	return h, nil
}

func released(turn uint64) string { return releasedKey + strconv.FormatUint(turn, 10) }

// with does work while it holds the lock. That the lock was lost meanwhile does not interrupt work.
func (l lock) with(ctx context.Context, work func(ctx context.Context) error) error {
	mine, err := l.acquire(ctx)
	if err != nil {
		return fmt.Errorf("wait for the group's membership lock: %w", err)
	}
	renewing, stop := context.WithCancel(ctx)
	final := make(chan lockState)
	go func() { final <- l.renew(renewing, mine) }()
	defer func() {
		stop()
		l.release(ctx, <-final)
	}()
	return work(ctx)
}

// acquire waits for the lock and takes it.
func (l lock) acquire(ctx context.Context) (lockState, error) {
	seen := ""
	for {
		was, err := parseLockState(seen)
		if err != nil {
			return lockState{}, err
		}
		mine := lockState{turn: was.turn + 1, owner: l.self}
		found, err := l.store.CompareSet(ctx, lockKey, []byte(seen), []byte(mine.String()))
		if err != nil {
			l.release(ctx, mine) // It may be ours.
			return lockState{}, err
		}
		if string(found) == mine.String() {
			return mine, nil
		}
		if seen, err = l.waitAvailable(ctx, string(found)); err != nil {
			return lockState{}, err
		}
	}
}

// available waits until the lock, last seen with this value, may be taken, and returns what it holds then.
func (l lock) waitAvailable(ctx context.Context, value string) (string, error) {
	unchanged := staleness{maxGap: l.renewInterval()}
	for {
		held, err := parseLockState(value)
		if err != nil || held.owner == 0 {
			return value, err
		}
		if err := waitKey(ctx, l.store, released(held.turn), l.renewInterval()); err != nil {
			return "", err
		}
		asked := time.Now()
		now, err := changeLog{l.store}.peek(ctx, lockKey)
		if err != nil {
			return "", err
		}
		value = string(now)
		if unchanged.observe(value, asked, time.Now()) >= l.timeout {
			l.log.Warn().Str("lock", value).Stringer("silence", l.timeout).Msg("the holder of the membership lock is silent, the lock is taken from it")
			return value, nil
		}
	}
}

// awaitKey waits for key, and no longer than most, whose end is no error.
func waitKey(ctx context.Context, store kvstore.Store, key string, timeout time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := store.Wait(waiting, key)
	if err != nil && errors.Is(err, kvstore.ErrTimeout) && ctx.Err() == nil {
		return nil
	}
	return err
}

// renew renews the lock until ctx ends, or it is lost, and returns its last value.
func (l lock) renew(ctx context.Context, mine lockState) lockState {
	ticker := time.NewTicker(l.renewInterval())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return mine
		case <-ticker.C:
		}
		next := mine
		next.counter++
		attempt, cancel := context.WithTimeout(ctx, l.renewInterval())
		found, err := l.store.CompareSet(attempt, lockKey, []byte(mine.String()), []byte(next.String()))
		cancel()
		switch {
		case err != nil: // It may be renewed: then the next attempt finds next there.
			l.log.Debug().Err(err).Msg("the membership lock could not be renewed")
		case string(found) == next.String():
			mine = next
		default:
			l.log.Warn().Str("lock", string(found)).Msg("the membership lock was lost")
			return mine
		}
	}
}

// release gives the lock back, if it is still ours, and tells those who wait. It goes on for a while after ctx's end. Where
// it fails the lock is free after its silence.
func (l lock) release(ctx context.Context, mine lockState) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.releaseTimeout)
	defer cancel()
	free := lockState{turn: mine.turn}.String()
	for value := mine.String(); ; {
		found, err := l.store.CompareSet(ctx, lockKey, []byte(value), []byte(free))
		if err != nil {
			l.log.Warn().Err(err).Msg("the membership lock could not be released")
			return
		}
		if string(found) == free {
			break
		}
		if string(found) == value {
			return // There is no such key: the lock was never ours.
		}
		value = string(found)
		// A renewal that seemed to have failed may have been made after all.
		if now, err := parseLockState(value); err != nil || now.turn != mine.turn || now.owner != mine.owner {
			return
		}
	}
	err := l.store.Set(ctx, released(mine.turn), []byte{'1'})
	if mine.turn > keptReleases && err == nil {
		_, err = l.store.Delete(ctx, released(mine.turn-keptReleases))
	}
	if err != nil {
		l.log.Debug().Err(err).Msg("the release of the membership lock was not told")
	}
}
