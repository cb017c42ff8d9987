package coord

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// disk keeps a core's keys and sessions in a file. One goroutine, run, writes all that has gathered since its last
// write in one transaction: however many wait, they wait for one.
type disk struct {
	db      *bbolt.DB
	stop    chan struct{}
	stopped chan struct{} // run has ended

	// Guarded by the server's mu:
	written  int64      // how many of the journal's edits are on the disk
	progress *sync.Cond // it has grown, or err is set
	err      error      // nothing can be written any more
}

const (
	dataFile   = "coordination.db"
	dataFormat = 1
	// lockPatience is how long a store that was told to end may take to give the file back.
	lockTimeout = time.Second
)

// OpenServer returns a store that keeps in a folder, which it makes if there is none, what must outlive its process:
// its instance id, keys, and the sessions of clients, that resume them when it is back. They have all of their TTL
// again then. A commit is on the disk before it is answered or seen. Two stores cannot use one folder at a time. ServerOptions.InstanceID is for a
// new folder.
func OpenServer(dir string, opts ServerOptions) (*Server, error) {
	d, err := openDisk(dir)
	if err != nil {
		return nil, fmt.Errorf("open coordination store: %w", err)
	}
	s := NewServer(opts)
	given := s.opts.InstanceID
	if s.opts.InstanceID, err = d.load(s.core, s.opts.InstanceID); err != nil {
		_ = d.db.Close() // nothing was written
		return nil, fmt.Errorf("open coordination store: %s: %w", filepath.Join(dir, dataFile), err)
	}
	s.fresh = s.opts.InstanceID == given
	s.core.journal = &journal{ready: make(chan struct{}, 1)}
	d.progress = sync.NewCond(&s.mu)
	s.disk = d
	s.remote = len(s.core.sessions)
	go d.run(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startTicker()
	return s, nil
}

// openDisk opens the file, so that no other process can.
func openDisk(dir string) (*disk, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, dataFile)
	var db *bbolt.DB
	err := catchFaults(func() (err error) {
		db, err = bbolt.Open(name, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType})
		return err
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("%s is in use: another store runs with that folder", name)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch),
		errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, errDamaged):
		return nil, fmt.Errorf("%s: %w (%w)", name, errNotAStore, err)
	case err != nil:
		return nil, err
	}
	return &disk{db: db, stop: make(chan struct{}), stopped: make(chan struct{})}, nil
}

var (
	errNotAStore = errors.New("it is no coordination store's file, or is damaged: move it away to begin anew")
	errDamaged   = errors.New("its pages do not fit together")
)

// guarded calls f, for which a damaged file, mapped into memory, may be a panic or a fault.
func catchFaults(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
		}
	}()
	return f()
}

// load fills an empty core, and returns the instance id: the one given if the file is new.
func (d *disk) load(c *core, instance string) (string, error) {
	err := catchFaults(func() error {
		return d.db.Update(func(tx *bbolt.Tx) error {
			meta := tx.Bucket([]byte(bucketMeta))
			if meta == nil {
				return initialize(tx, instance)
			}
			format := (&fields{b: meta.Get([]byte(metaFormat))}).number()
			if format > dataFormat {
				return fmt.Errorf("it was written by a newer elasticrun, in format %d, and this one knows %d: "+
					"use that one, or another folder", format, dataFormat)
			}
			instance = string(meta.Get([]byte(metaInstance)))
			if format < 1 || instance == "" {
				return errNotAStore
			}
			return c.load(tx)
		})
	})
	if errors.Is(err, errMalformed) || errors.Is(err, errDamaged) {
		err = fmt.Errorf("%w (%w)", errNotAStore, err)
	}
	return instance, err
}

// initialize makes a new file's buckets.
func initialize(tx *bbolt.Tx, instance string) error {
	for _, name := range []string{bucketMeta, bucketSessions, bucketKeys} {
		if _, err := tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	meta := tx.Bucket([]byte(bucketMeta))
	if err := meta.Put([]byte(metaInstance), []byte(instance)); err != nil {
		return err
	}
	return meta.Put([]byte(metaFormat), appendNumber(nil, dataFormat))
}

// load fills an empty core.
func (c *core) load(tx *bbolt.Tx) error {
	sessions, keys := tx.Bucket([]byte(bucketSessions)), tx.Bucket([]byte(bucketKeys))
	if sessions == nil || keys == nil {
		return errNotAStore
	}
	if kept := tx.Bucket([]byte(bucketMeta)).Get([]byte(metaRevision)); kept != nil {
		in := &fields{b: kept}
		if c.revision = Revision(in.number()); in.end() != nil {
			return errMalformed
		}
	}
	err := sessions.ForEach(func(id, kept []byte) error {
		in := &fields{b: kept}
		ttl, token := in.duration(), in.string()
		if in.end() != nil || ttl <= 0 {
			return errMalformed
		}
		c.openSession(SessionID(id), token, ttl, 0)
		return nil
	})
	if err != nil {
		return err
	}
	return keys.ForEach(func(_, kept []byte) error {
		in := &fields{b: kept}
		e := &entry{key: in.string(), create: Revision(in.number()), ttl: in.duration()}
		owner := SessionID(in.string())
		if in.malformed || e.create > c.revision || owner != "" && c.sessions[owner] == nil {
			return errMalformed
		}
		e.value = append([]byte(nil), in.b...) // the file's memory is not ours
		c.entries[e.key] = e
		c.order.add(e.key)
		c.setOwner(e, c.sessions[owner])
		c.budget.count(e, 1)
		c.startTTL(e, 0)
		return nil
	})
}

// run writes what the journal gathers until the server has ended.
func (d *disk) run(s *Server) {
	defer close(d.stopped)
	for stopping := false; !stopping; {
		select {
		case <-s.core.journal.ready:
		case <-d.stop:
			stopping = true
		}
		s.mu.Lock()
		edits, count, size := s.core.journal.edits, s.core.journal.count, s.core.journal.size
		s.core.journal.edits = nil
		failed := d.err != nil
		s.mu.Unlock()
		if failed || len(edits) == 0 {
			continue
		}
		err := d.write(edits)
		s.mu.Lock()
		if err == nil {
			d.written = count
			s.core.journal.size -= size
		} else {
			d.err = fmt.Errorf("%w: it cannot write to its disk: %w", ErrUnavailable, err)
			s.opts.Logger.Error().Err(err).Msg("coordination store cannot write to its disk, and ends")
			s.fail(d.err)
		}
		d.progress.Broadcast()
		s.mu.Unlock()
	}
}

// write writes edits, all or none.
func (d *disk) write(edits []edit) error {
	return d.db.Update(func(tx *bbolt.Tx) error {
		for _, e := range edits {
			b := tx.Bucket([]byte(e.bucket))
			var err error
			if e.value == nil {
				err = b.Delete([]byte(e.key))
			} else {
				err = b.Put([]byte(e.key), e.value)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// kept waits until all that the core has done is on the disk, if it has one. mu is held, but not while it waits.
func (s *Server) waitDurable() error {
	d := s.disk
	if d == nil {
		return nil
	}
	for count := s.core.journal.count; d.written < count; d.progress.Wait() {
		if d.err != nil {
			return d.err
		}
	}
	return nil
}

// close waits until all is written.
func (d *disk) close() error {
	close(d.stop)
	<-d.stopped
	return d.db.Close()
}

// journal gathers what a core has changed and its disk does not have yet. The nil journal is that of a store in
// memory.
//
// What is kept, each number a uvarint and each string behind its length:
//
//	keys      k key, or h and its hash   key, create-revision, TTL, owner's id, value up to the end
//	sessions  id                         TTL, token
//	meta      revision                   number
//	          format                     number, see disk.go
//	          instance                   the store's instance id
type journal struct {
	edits []edit
	count int64         // of all edits ever
	size  int64         // about how many bytes the disk does not have yet
	ready chan struct{} // there are edits; room for one
}

// edit is one write to a disk.
type edit struct {
	bucket string
	key    string
	value  []byte // nil: it is deleted
}

const (
	bucketKeys     = "keys"
	bucketSessions = "sessions"
	bucketMeta     = "meta"
	metaRevision   = "revision"
	metaFormat     = "format"
	metaInstance   = "instance"
)

func (j *journal) add(bucket, key string, value []byte) {
	j.edits = append(j.edits, edit{bucket: bucket, key: key, value: value})
	j.count++
	j.size += editBytes(bucket, key, value)
	select {
	case j.ready <- struct{}{}:
	default:
	}
}

func editBytes(bucket, key string, value []byte) int64 {
	return int64(editSize + len(bucket) + len(key) + len(value))
}

// keyOnDisk is where a key is kept: disks do not take them as long as a commit does.
func diskKey(key string) string {
	if len(key) <= 1<<10 {
		return "k" + key
	}
	hash := sha256.Sum256([]byte(key))
	return "h" + string(hash[:])
}

func (j *journal) put(e *entry) {
	if j == nil {
		return
	}
	var owner SessionID
	if e.owner != nil {
		if owner = e.owner.id; e.owner.ttl == 0 {
			j.remove(e.key) // that session ends with the process, and its keys with it
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
