package membership

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// These are the keys for the shutdown of a static group.
const (
	shutdownKey = "shutdown/" // + rank: this member drains. The value is its status and name, for error messages only.
	idleKey     = "idle"      // the number of idle members
	doneKey     = "done"      // set after all members were idle at the same time
	drainedKey  = "left"      // see leaveStore
)

const (
	markIdle   = "idle"
	markBusy   = "busy"
	markFailed = "failed"
)

// Drain shuts down a static group; each member calls it. It returns once all members have called it and no member has
// outstanding work. Until then functions run for other members and may make further calls. Root calls are refused as
// soon as Drain starts, and all work is refused once it ends, also after an error. A second call returns the result of
// the first.
//
// The store counts the idle members. A member raises the count with Add. Before an idle member starts new work, it
// lowers the count with CompareSet. CompareSet never lowers the count from the number of all members. So the count
// stays at that number once reached, and later work is refused. Such work exists: a request whose caller has stopped
// waiting can arrive late.
//
// If a store operation fails, Drain returns its error, because it is then unknown whether this member is counted as
// idle. A [*MissingError] names the members that Drain waited for in vain. Rank 0 may host the store, so it waits up to
// two seconds until all other members know the result. In a dynamic group Drain returns a [*WorldSizeError].
func (w *Work) Drain(ctx context.Context, store kvstore.Store, self Record) error {
	if self.WorldSize < 1 { // members of a dynamic group can only leave
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
			_ = store.Set(cleanup, doneKey, []byte("1")) // if this fails, the others read the count when their contexts end
		}
		leaveStore(cleanup, store, self, drainedKey)
	}
	return w.finish(err)
}

// drain is the shutdown of a static group as one member runs it.
type drain struct {
	store      kvstore.Store
	self       Record
	work       *Work
	decrements int  // attempts to lower the count; makes each written value unique
	sawAllIdle bool // this member has seen the full count, so it notifies the others

	done    chan struct{} // closed once the wait for doneKey has ended; waitErr is set before
	waitErr error
}

// run returns nil once all members were idle at the same time.
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

// reportUntilIdle reports each change of this member's state to the group until all members are idle.
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
			return fmt.Errorf("worker %q: report whether it is idle: %w", d.self.Name, err)
		}
	}
	return nil
}

// announceIdle counts this member as idle.
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

// resume removes this member from the count and admits the waiting work, unless all members were idle. Add parses the
// value that resume writes as a number. The text after the number makes the value unique, because CompareSet's answer
// must prove that this member wrote it.
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

// mark stores the member's status for the error messages of other members.
func (d *drain) mark(ctx context.Context, what string) error {
	return d.store.Set(ctx, shutdownKey+strconv.Itoa(d.self.ID), []byte(what+" "+d.self.Name))
}

// allIdle reports whether all members were idle, in case the member that saw the full count could not notify the
// others.
func (d *drain) allIdle(ctx context.Context) bool {
	n, err := d.store.Add(ctx, idleKey, 0)
	d.sawAllIdle = err == nil && n >= int64(d.self.WorldSize)
	return d.sawAllIdle
}

// explain returns a MissingError that names the members this member waited for. err is the error of the wait.
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
