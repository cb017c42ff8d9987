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
	// releasedKey + turn is set when the holder of that turn releases the lock, to wake the waiters.
	releasedKey = "released/"
	// keptReleases is the number of turns for which a released key stays. A waiter needs only the last one. The others
	// stay so that a key that was set late is deleted too.
	keptReleases = 8
)

// lock is the membership lock of a dynamic group: joins and leaves happen one at a time. The holder renews the lock
// every third of timeout. A waiter takes over a lock that is not renewed. A missing renewal does not prove death: a
// paused holder may continue later. So the lock only orders changes, and nothing else may depend on it. The holder
// commits its decision to the log, where only one entry can be next.
type lock struct {
	store          kvstore.Store
	self           uint64
	timeout        time.Duration
	releaseTimeout time.Duration // for a release after the end of its context
	log            zerolog.Logger
}

func (l lock) renewInterval() time.Duration { return fractionOf(l.timeout, 3) }

// lockState is the value of the lock.
type lockState struct {
	turn    uint64 // increases with each holder
	owner   uint64 // the holder's incarnation; 0 if the lock was released
	counter uint64 // increases with each renewal
}

func (s lockState) String() string { return fmt.Sprintf("%d %x %d", s.turn, s.owner, s.counter) }

// parseLockState parses the result of String. The empty text is the state before the first holder.
func parseLockState(text string) (lockState, error) {
	if text == "" {
		return lockState{}, nil
	}
	var s lockState
	n, err := fmt.Sscanf(text, "%d %x %d", &s.turn, &s.owner, &s.counter)
	if err != nil || n != 3 || s.String() != text {
		return lockState{}, fmt.Errorf("key %q of the group's store holds %q, which is not a membership lock: "+
			"another program writes to this store", lockKey, text)
	}
	return s, nil
}

func released(turn uint64) string { return releasedKey + strconv.FormatUint(turn, 10) }

// with calls work while it holds the lock. The loss of the lock does not interrupt work.
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
			l.release(ctx, mine) // The store may have set it.
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

// waitAvailable waits until the lock may be taken, and returns its value then. value is the last known value.
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
			l.log.Warn().Str("lock", value).Stringer("timeout", l.timeout).
				Msg("the holder of the membership lock has not renewed it in time; taking the lock over")
			return value, nil
		}
	}
}

// waitKey waits for key for at most timeout. Reaching that timeout is not an error.
func waitKey(ctx context.Context, store kvstore.Store, key string, timeout time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := store.Wait(waiting, key)
	if err != nil && errors.Is(err, kvstore.ErrTimeout) && ctx.Err() == nil {
		return nil
	}
	return err
}

// renew renews the lock until ctx ends or the lock is lost, and returns its last value.
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
		case err != nil: // The store may have renewed it; then the next attempt finds the value of next.
			l.log.Debug().Err(err).Msg("the membership lock could not be renewed")
		case string(found) == next.String():
			mine = next
		default:
			l.log.Warn().Str("lock", string(found)).Msg("the membership lock was lost")
			return mine
		}
	}
}

// release releases the lock if this member still holds it, and wakes the waiters. It continues for up to releaseTimeout
// after ctx has ended. If it fails, the lock is free after timeout.
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
			return // The key does not exist: this member never held the lock.
		}
		value = string(found)
		// A renewal that returned an error may have succeeded.
		if now, err := parseLockState(value); err != nil || now.turn != mine.turn || now.owner != mine.owner {
			return
		}
	}
	err := l.store.Set(ctx, released(mine.turn), []byte{'1'})
	if mine.turn > keptReleases && err == nil {
		_, err = l.store.Delete(ctx, released(mine.turn-keptReleases))
	}
	if err != nil {
		l.log.Debug().Err(err).Msg("the waiters for the membership lock could not be notified")
	}
}
