package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// Watch implements coord.Store.
func (s *Store) Watch(ctx context.Context, prefix string, handle func(coord.Batch) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-s.lost:
			cancel(s.Err())
		case <-ctx.Done():
		}
	}()
	defer func() {
		cancel(nil)
		<-done
	}()

	w := &watch{store: s, prefix: s.root + prefix, handle: handle}
	for wait := minRetryWait; ; wait = min(2*wait, maxRetryWait) {
		before := w.batches
		err := w.follow(ctx)
		switch {
		case w.handleErr != nil:
			return w.handleErr
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, new(*coord.RefusedError)):
			return err
		}
		s.options.Logger.Debug().Err(err).Str("prefix", prefix).Int64("next", w.next).Msg("watch interrupted")
		if w.batches > before {
			wait = minRetryWait
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait)): // spread the agents' retries
		}
	}
}

// The delays between two attempts to watch.
const (
	minRetryWait = 20 * time.Millisecond
	maxRetryWait = time.Second
)

// watch is the state of one Watch call across interruptions.
type watch struct {
	store     *Store
	prefix    string
	handle    func(coord.Batch) error
	next      int64 // the next revision to deliver; 0 means list all keys first
	batches   int   // the number of delivered batches
	handleErr error // returned by handle
}

// follow lists all keys if necessary, and then delivers changes until an error.
func (w *watch) follow(ctx context.Context) error {
	from := w.next
	if from == 0 {
		if err := w.list(ctx); err != nil {
			return err
		}
		from = w.next
	} else {
		// Watch from one revision earlier than necessary: some servers drop the deletes of the exact revision to which
		// the history was compacted, so a watch from that revision would miss them. (This is not done right after a
		// list, because etcd delays a watch of a past revision by up to 0.1 s.)
		from--
	}
	stream, err := w.store.openStream(ctx, w.prefix, from)
	if err != nil {
		return err
	}
	defer stream.close()
	for {
		resp, err := stream.recv(ctx)
		events := resp.GetEvents()
		switch {
		case resp != nil && err != nil:
			w.next = 0 // a list returns the real error if it persists
			return err
		case err != nil:
			return err
		case len(events) == 0 && !resp.Created && resp.Header.GetRevision() < w.next-1:
			err = fmt.Errorf("etcd is at revision %d and was at %d: its data was rolled back",
				resp.Header.GetRevision(), w.next-1)
			w.next = 0
			return err
		case len(events) == 0: // the server is alive
			continue
		case events[0].Kv.ModRevision < from:
			w.next = 0 // split within a revision or out of order: never observed, not trusted
			return fmt.Errorf("etcd sent revision %d after %d", events[0].Kv.ModRevision, from-1)
		}
		from = events[len(events)-1].Kv.ModRevision + 1
		if err := w.notify(events); err != nil {
			return err
		}
	}
}

// list delivers all keys.
func (w *watch) list(ctx context.Context) error {
	ctx, cancel := w.store.op(ctx)
	defer cancel()
	all, err := w.store.cli.Get(ctx, w.prefix, clientv3.WithPrefix())
	if err != nil {
		return w.store.explain(ctx, "list keys", err)
	}
	b := coord.Batch{Revision: coord.Revision(all.Header.Revision), Resync: true}
	b.Events = make([]coord.Event, 0, len(all.Kvs))
	for _, kv := range all.Kvs {
		b.Events = append(b.Events, w.put(kv))
	}
	return w.deliver(b)
}

// notify delivers the events that are new.
func (w *watch) notify(events []*mvccpb.Event) error {
	b := coord.Batch{Revision: coord.Revision(events[len(events)-1].Kv.ModRevision)}
	for _, e := range events {
		switch {
		case e.Kv.ModRevision < w.next: // already delivered
		case e.Type == mvccpb.Event_DELETE:
			b.Events = append(b.Events, coord.Event{Key: w.key(e.Kv), Deleted: true})
		default:
			b.Events = append(b.Events, w.put(e.Kv))
		}
	}
	if len(b.Events) == 0 {
		return nil
	}
	return w.deliver(b)
}

func (w *watch) deliver(b coord.Batch) error {
	w.handleErr = w.handle(b)
	w.next = int64(b.Revision) + 1
	w.batches++
	return w.handleErr
}

func (w *watch) put(kv *mvccpb.KeyValue) coord.Event {
	return coord.Event{Key: w.key(kv), Value: kv.Value, Create: coord.Revision(kv.CreateRevision)}
}

func (w *watch) key(kv *mvccpb.KeyValue) string {
	return strings.TrimPrefix(string(kv.Key), w.store.root)
}
