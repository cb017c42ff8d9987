package coord

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/rs/zerolog"
)

// journal collects the core's changes that are not durable yet. A nil journal belongs to a store in memory.
type journal struct {
	edits []Edit
	count int64         // the number of edits since the start
	size  int64         // approximate bytes of the edits that are not durable
	ready chan struct{} // signals that there are edits, or that a confirmation is wanted; capacity 1
}

func (j *journal) add(bucket, key string, value []byte) {
	j.edits = append(j.edits, Edit{Bucket: bucket, Key: key, Value: value})
	j.count++
	j.size += editBytes(bucket, key, value)
	signal(j.ready)
}

// signal wakes whoever receives from a channel with capacity 1. It does nothing if the channel holds a signal already.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

func editBytes(bucket, key string, value []byte) int64 {
	return int64(editSize + len(bucket) + len(key) + len(value))
}

func (j *journal) put(e *entry) {
	if j == nil {
		return
	}
	var owner SessionID
	if e.owner != nil {
		if owner = e.owner.id; e.owner.ttl == 0 {
			j.remove(e.key) // a local session, and its keys, end with the process
			return
		}
	}
	b := make([]byte, 0, 4*binary.MaxVarintLen64+len(e.key)+len(owner)+len(e.value))
	b = appendNumber(appendString(b, e.key), e.create)
	b = appendString(appendNumber(b, e.ttl), string(owner))
	j.add(bucketKeys, diskKey(e.key), append(b, e.value...))
}

func (j *journal) remove(key string) {
	if j != nil {
		j.add(bucketKeys, diskKey(key), nil)
	}
}

func (j *journal) session(s *session) {
	if j != nil && s.ttl != 0 {
		j.add(bucketSessions, string(s.id), appendString(appendNumber(nil, s.ttl), s.token))
	}
}

func (j *journal) sessionEnd(s *session) {
	if j != nil && s.ttl != 0 {
		j.add(bucketSessions, string(s.id), nil)
	}
}

func (j *journal) revision(r Revision) {
	if j != nil {
		j.add(bucketMeta, metaRevision, appendNumber(nil, r))
	}
}

// The buckets of the edits, and a key of the metadata bucket. In the bucket of sessions the key is a session's id. The
// format of the file (see disk) defines the values.
const (
	bucketKeys     = "keys"
	bucketSessions = "sessions"
	bucketMeta     = "meta"
	metaRevision   = "revision"
)

// load fills an empty core. Its error is errMalformed.
func (c *core) load(from Contents) error {
	for key, value := range from.All(bucketMeta) {
		if key != metaRevision {
			continue
		}
		in := &fields{b: value}
		if c.revision = Revision(in.number()); in.end() != nil {
			return errMalformed
		}
	}
	for id, value := range from.All(bucketSessions) {
		in := &fields{b: value}
		ttl, token := in.duration(), in.string()
		if in.end() != nil || ttl <= 0 {
			return errMalformed
		}
		c.openSession(SessionID(id), token, ttl, 0)
	}
	for _, value := range from.All(bucketKeys) {
		in := &fields{b: value}
		e := &entry{key: in.string(), create: Revision(in.number()), ttl: in.duration()}
		owner := SessionID(in.string())
		if in.malformed || e.create > c.revision || owner != "" && c.sessions[owner] == nil {
			return errMalformed
		}
		e.value = append([]byte(nil), in.b...)
		c.entries[e.key] = e
		c.order.add(e.key)
		c.setOwner(e, c.sessions[owner])
		c.budget.count(e, 1)
		c.startTTL(e, 0)
	}
	return nil
}

// journalWriter hands the journal's edits to a keeper. One goroutine, run, writes all edits since its last write at
// once. All waiting commits share that write.
type journalWriter struct {
	to      Keeper
	confirm func() error // of a SharedKeeper; nil for any other keeper
	stop    chan struct{}
	stopped chan struct{} // closed when run has returned

	// The server's mu guards these fields:
	written   int64      // the number of edits that are durable
	begun     int64      // the number of keeper calls that have begun
	confirmed int64      // the number of the latest call that confirmed that this store still owns the keeper
	wanted    bool       // somebody waits for a call that begins from now on
	progress  *sync.Cond // written or confirmed has grown, or err is set
	err       error      // the error of the last call; nil until a call fails
}

// keepJournal makes each change durable, from now on, before the server answers or sends anything that follows from it.
func (s *Server) keepJournal(to Keeper) {
	s.core.journal = &journal{ready: make(chan struct{}, 1)}
	s.writer = &journalWriter{
		to: to, stop: make(chan struct{}), stopped: make(chan struct{}), progress: sync.NewCond(&s.mu),
	}
	if to, ok := to.(SharedKeeper); ok {
		s.writer.confirm = to.Confirm
	}
	go s.writer.run(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startTicker()
}

// run writes the journal's edits until close. It makes one keeper call at a time. A write is a confirmation too,
// because the keeper accepts writes only from the store that owns it.
func (w *journalWriter) run(s *Server) {
	defer close(w.stopped)
	for stopping := false; !stopping; {
		select {
		case <-s.core.journal.ready:
		case <-w.stop:
			stopping = true
		}
		s.mu.Lock()
		edits, count, size := s.core.journal.edits, s.core.journal.count, s.core.journal.size
		s.core.journal.edits = nil
		idle := len(edits) == 0 && !w.wanted || w.err != nil
		if !idle {
			w.begun, w.wanted = w.begun+1, false
		}
		number := w.begun
		s.mu.Unlock()
		if idle {
			continue
		}
		err := w.call(edits)
		s.mu.Lock()
		if err == nil {
			w.written, w.confirmed = count, number
			s.core.journal.size -= size
		} else {
			w.err = fmt.Errorf("%w: %s: %w", ErrUnavailable, w.to.Failure(), err)
			level := zerolog.ErrorLevel
			if w.confirm != nil { // other stores continue with the keeper
				level = zerolog.DebugLevel
			}
			s.opts.Logger.WithLevel(level).Err(err).Msgf("the coordination store ends: %s", w.to.Failure())
			s.fail(w.err)
		}
		w.progress.Broadcast()
		s.mu.Unlock()
	}
}

// call writes the edits. Without edits it asks the keeper for a confirmation.
func (w *journalWriter) call(edits []Edit) error {
	if len(edits) == 0 {
		return w.confirm()
	}
	return w.to.Write(edits)
}

// close waits until all edits are written and closes the keeper.
func (w *journalWriter) close() error {
	close(w.stop)
	<-w.stopped
	return w.to.Close()
}

// waitDurable waits until all changes of the core are durable. With a SharedKeeper it also waits until the store is
// known to have owned the keeper after the call began. It returns at once for a store in memory. The caller holds mu;
// waitDurable releases mu while it waits.
func (s *Server) waitDurable() error {
	w := s.writer
	if w == nil {
		return nil
	}
	count, number := s.core.journal.count, w.confirmed
	if w.confirm != nil {
		number = w.begun + 1
		w.wanted = true
		signal(s.core.journal.ready)
	}
	for ; w.written < count || w.confirmed < number; w.progress.Wait() {
		if w.err != nil {
			return w.err
		}
	}
	return nil
}

// maxSharedBacklog is how many bytes of edits may wait for a SharedKeeper, which sends them to other hosts.
const maxSharedBacklog = 4 << 20

// waitForBacklog waits until the edits that are not durable yet use at most a quarter of MaxMemory and, with a
// SharedKeeper, at most maxSharedBacklog. The caller holds mu; waitForBacklog releases mu while it waits.
func (s *Server) waitForBacklog() {
	limit := s.opts.MaxMemory / 4
	if s.writer != nil && s.writer.confirm != nil {
		limit = min(limit, maxSharedBacklog)
	}
	for w := s.writer; w != nil && w.err == nil && s.core.journal.size > limit; {
		w.progress.Wait()
	}
}
