package membership

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// The keys of a static group's end.
const (
	shutdownKey = "shutdown/" // and the rank: this member drains; what it does and its name, which only helps to explain
	idleKey     = "idle"      // the number of members that are idle
	doneKey     = "done"      // all were idle at one time
	drainedKey  = "left"      // see part
)

const (
	markIdle   = "idle"
	markBusy   = "busy"
	markFailed = "failed"
)

// Drain is the graceful end of a static group, which each member calls. It returns when all have called it and nothing is outstanding
// in any of them; until then functions run for other members, and may call further ones. From its begin root calls are
// refused, and from its end, in whichever way, everything. A second call has the end of the first.
//
// The members that are idle are counted in the store. The count goes up by Add, and down, before new work begins in an idle
// member, by CompareSet, which never takes it down from the number of all members: so that number, once reached, stays, and
// work that comes later is refused. (It may come: a request whose caller has stopped waiting for it.)
//
// An operation of the store that fails ends this member's part with its error, as it is not known then whether the member is
// counted. A [*MissingError] names those for which it has waited in vain. Rank 0 may host the store, so it waits for up to two
// seconds until all others know the end. In a dynamic group it is a [*WorldSizeError].
func (w *Work) Drain(ctx context.Context, store kvstore.Store, self Record) error {
	if self.WorldSize < 1 { // its members can only leave
		return &WorldSizeError{Worker: self.Name, WorldSize: self.WorldSize}
	}
	if !w.startEnd() {
		return w.waitEnd(ctx)
	}
	d := drain{store: store, self: self, work: w, done: make(chan struct{})}
	err := d.run(ctx)
	w.refuseAll()
	cleanup, cancel := cleanupContext(ctx)
	defer cancel()
	switch {
	case err == nil, errors.Is(err, ErrShutdown):
	case d.allIdle(cleanup):
		err = nil
	case timedOut(ctx, err):
		err = d.explain(cleanup, err)
	default:
		_ = d.mark(cleanup, markFailed)
	}
	if err == nil {
		if d.sawAllIdle {
			_ = store.Set(cleanup, doneKey, []byte("1")) // others find it out when their time is over
		}
		leaveStore(cleanup, store, self, drainedKey)
	}
	return w.finish(err)
}

// drain is one member's part in the end of its group.
type drain struct {
	store      kvstore.Store
	self       Record
	work       *Work
	decrements int  // how often the count was taken down, or was to be
	sawAllIdle bool // this member has seen that all are idle, so it tells the others

	done    chan struct{} // closed when the wait for another member to tell has ended, with waited
	waitErr error
}

// run returns nil when all members were idle at one time.
func (d *drain) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(d.done)
		d.waitErr = d.store.Wait(ctx, doneKey)
	}()
	err := d.reportUntilIdle(ctx)
	cancel()
	<-d.done
	return err
}

// follow tells the group of each change here until all members are idle.
func (d *drain) reportUntilIdle(ctx context.Context) error {
	if err := d.mark(ctx, markBusy); err != nil {
		return fmt.Errorf("worker %q: begin to shut down: %w", d.self.Name, err)
	}
	for !d.sawAllIdle {
		var err error
		switch d.work.nextAction() {
		case announceIdle:
			err = d.announceIdle(ctx)
		case resume:
			err = d.resume(ctx)
		case stop:
			return ErrShutdown
		case nothing:
			select {
			case <-d.work.changed:
			case <-d.done:
				if d.waitErr != nil {
					return fmt.Errorf("worker %q: wait until all workers are idle: %w", d.self.Name, d.waitErr)
				}
				return nil
			}
		}
		if err != nil {
			return fmt.Errorf("worker %q: tell whether it is idle: %w", d.self.Name, err)
		}
	}
	return nil
}

// announce counts this member as idle.
func (d *drain) announceIdle(ctx context.Context) error {
	n, err := d.store.Add(ctx, idleKey, 1)
	if err != nil {
		return err
	}
	if d.sawAllIdle = n >= int64(d.self.WorldSize); !d.sawAllIdle {
		_ = d.mark(ctx, markIdle)
	}
	return nil
}

// resume takes this member from the count and lets in what waits here, unless all were idle. What it writes is a number to Add, and
// like nothing else to CompareSet, whose answer would not tell who has written it.
func (d *drain) resume(ctx context.Context) error {
	_ = d.mark(ctx, markBusy)
	n, err := d.store.Add(ctx, idleKey, 0)
	held := strconv.FormatInt(n, 10)
	for err == nil {
		if d.sawAllIdle = n >= int64(d.self.WorldSize); d.sawAllIdle {
			return nil
		}
		d.decrements++
		lower := fmt.Sprintf("%d after %x/%d", n-1, d.self.Incarnation, d.decrements)
		var got []byte
		if got, err = d.store.CompareSet(ctx, idleKey, []byte(held), []byte(lower)); err != nil {
			break
		}
		held = string(got)
		if held == lower {
			d.work.admit()
			return nil
		}
		number, _, _ := strings.Cut(held, " ")
		n, err = strconv.ParseInt(number, 10, 64)
	}
	return err
}

// mark tells what the member does, for those who wait for it in vain.
func (d *drain) mark(ctx context.Context, what string) error {
	return d.store.Set(ctx, shutdownKey+strconv.Itoa(d.self.ID), []byte(what+" "+d.self.Name))
}

// complete tells whether all members were idle, where the one that saw it first could not say so.
func (d *drain) allIdle(ctx context.Context) bool {
	n, err := d.store.Add(ctx, idleKey, 0)
	d.sawAllIdle = err == nil && n >= int64(d.self.WorldSize)
	return d.sawAllIdle
}

// explain names those for which this member has waited in vain, where err is the end of the wait.
func (d *drain) explain(ctx context.Context, err error) error {
	missing := MissingError{Step: StepDrain, WorldSize: d.self.WorldSize, Err: err}
	keys := rankKeys(shutdownKey, d.self.WorldSize)
	var checkErr error
	if missing.Ranks, checkErr = absentKeys(ctx, d.store, keys); checkErr != nil {
		return err
	}
	if len(missing.Ranks) == 0 {
		marks, checkErr := d.store.MultiGet(ctx, keys...)
		if checkErr != nil {
			return err
		}
		missing.Step = StepIdle
		for rank, mark := range marks {
			if what, name, _ := strings.Cut(string(mark), " "); what != markIdle {
				missing.Ranks, missing.Names = append(missing.Ranks, rank), append(missing.Names, name)
			}
		}
	}
	if len(missing.Ranks) == 0 {
		return err
	}
	return &missing
}
