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

// disk keeps a core's keys and sessions in a file. One goroutine, run, writes everything that has accumulated since its
// last write in one transaction. All waiting commits share that write.
type disk struct {
	db      *bbolt.DB
	stop    chan struct{}
	stopped chan struct{} // closed when run has returned

	// The server's mu guards these fields:
	written  int64      // the number of journal edits that are on the disk
	progress *sync.Cond // written has grown or err is set
	err      error      // set after a failed write; the disk then accepts no more writes
}

const (
	dataFile   = "coordination.db"
	dataFormat = 1
	// lockTimeout is how long OpenServer waits for a store that is shutting down to release the file.
	lockTimeout = time.Second
)

// OpenServer returns a store that keeps in the folder dir what must survive its process: its instance id, its keys and
// the sessions of its clients. It creates dir if necessary. Clients resume their sessions after a restart; each session
// then has its whole TTL again. A commit is on the disk before it is answered or visible. Two stores cannot use one
// folder at a time. ServerOptions.InstanceID applies only to a new folder.
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

// openDisk opens and locks the file.
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
	errNotAStore = errors.New("it is not a coordination store's file, or it is damaged: " +
		"move it away to start with an empty store")
	errDamaged = errors.New("its pages are inconsistent")
)

// catchFaults calls f and turns a panic or memory fault into errDamaged: bbolt maps the file into memory, and a damaged
// file can cause either.
func catchFaults(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
		}
	}()
	return f()
}

// load fills the empty core c and returns the instance id, which is the given one if the file is new.
func (d *disk) load(c *core, instance string) (string, error) {
	err := catchFaults(func() error {
		return d.db.Update(func(tx *bbolt.Tx) error {
			meta := tx.Bucket([]byte(bucketMeta))
			if meta == nil {
				return initialize(tx, instance)
			}
			format := (&fields{b: meta.Get([]byte(metaFormat))}).number()
			if format > dataFormat {
				return fmt.Errorf("a newer elasticrun wrote it in format %d, and this one reads formats up to %d: "+
					"use the newer one, or another folder", format, dataFormat)
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

// initialize creates the buckets of a new file.
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
	if value := tx.Bucket([]byte(bucketMeta)).Get([]byte(metaRevision)); value != nil {
		in := &fields{b: value}
		if c.revision = Revision(in.number()); in.end() != nil {
			return errMalformed
		}
	}
	err := sessions.ForEach(func(id, value []byte) error {
		in := &fields{b: value}
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
	return keys.ForEach(func(_, value []byte) error {
		in := &fields{b: value}
		e := &entry{key: in.string(), create: Revision(in.number()), ttl: in.duration()}
		owner := SessionID(in.string())
		if in.malformed || e.create > c.revision || owner != "" && c.sessions[owner] == nil {
			return errMalformed
		}
		e.value = append([]byte(nil), in.b...) // bbolt's memory is valid only in the transaction
		c.entries[e.key] = e
		c.order.add(e.key)
		c.setOwner(e, c.sessions[owner])
		c.budget.count(e, 1)
		c.startTTL(e, 0)
		return nil
	})
}

// run writes the journal's edits until the server has ended.
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
			s.opts.Logger.Error().Err(err).Msg("coordination store cannot write to its disk and ends")
			s.fail(d.err)
		}
		d.progress.Broadcast()
		s.mu.Unlock()
	}
}

// write applies all edits or none.
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

// waitDurable waits until all changes of the core are on the disk. It returns at once for a store in memory. The caller
// holds mu; waitDurable releases it while it waits.
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

// close waits until all edits are written and closes the file.
func (d *disk) close() error {
	close(d.stop)
	<-d.stopped
	return d.db.Close()
}

// journal collects the core's changes that are not on the disk yet. A nil journal belongs to a store in memory.
//
// Layout of the file; each number is a uvarint, each string follows its length:
//
//	bucket    key                        value
//	keys      k key, or h and its hash   key, create-revision, TTL, owner's id, value up to the end
//	sessions  id                         TTL, token
//	meta      revision                   number
//	          format                     number, see dataFormat
//	          instance                   the store's instance id
type journal struct {
	edits []edit
	count int64         // the number of edits since the start
	size  int64         // approximate bytes of the edits that are not on the disk
	ready chan struct{} // signals that there are edits; capacity 1
}

// edit is one write to the disk.
type edit struct {
	bucket string
	key    string
	value  []byte // nil deletes the key
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

// diskKey returns the key's name in the file. bbolt's limit for keys is lower than MaxCommit, so long keys are hashed.
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
