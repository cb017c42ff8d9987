package coord

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// disk keeps a core's keys and sessions in a file.
//
// Layout of the file; each number is a uvarint, each string follows its length:
//
//	bucket    key                        value
//	keys      k key, or h and its hash   key, create-revision, TTL, owner's id, value up to the end
//	sessions  id                         TTL, token
//	meta      revision                   number
//	          format                     number, see dataFormat
//	          instance                   the store's instance id
type disk struct{ db *bbolt.DB }

// Keys of the metadata bucket that only the file itself uses.
const (
	metaFormat   = "format"
	metaInstance = "instance"
)

const (
	dataFile   = "coordination.db"
	dataFormat = 1
	// lockTimeout is how long OpenServer waits for a store that is shutting down to release the file.
	lockTimeout = time.Second
)

// OpenServer returns a store that keeps its durable state in the folder dir: its instance id, its keys and the sessions
// of its clients. It creates dir if necessary. Clients resume their sessions after a restart; each session then has its
// whole TTL again. A commit is on the disk before it is answered or visible. Two stores cannot use one folder at the
// same time. ServerOptions.InstanceID applies only to a new folder.
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
	s.remote = len(s.core.sessions)
	s.keepJournal(d)
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
	return &disk{db}, nil
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

// load fills the empty core c and returns the instance id. If the file is new, that is the given one.
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
			if tx.Bucket([]byte(bucketSessions)) == nil || tx.Bucket([]byte(bucketKeys)) == nil {
				return errNotAStore
			}
			return c.load(fileContents{tx})
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

// fileContents is the content of a file, in a transaction.
type fileContents struct{ tx *bbolt.Tx }

// All returns the keys and values of a bucket.
func (f fileContents) All(bucket string) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		c := f.tx.Bucket([]byte(bucket)).Cursor()
		for key, value := c.First(); key != nil && yield(string(key), value); key, value = c.Next() {
		}
	}
}

// Write applies all edits or none.
func (d *disk) Write(edits []Edit) error {
	return d.db.Update(func(tx *bbolt.Tx) error {
		for _, e := range edits {
			b := tx.Bucket([]byte(e.Bucket))
			var err error
			if e.Value == nil {
				err = b.Delete([]byte(e.Key))
			} else {
				err = b.Put([]byte(e.Key), e.Value)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Failure implements Keeper: the disk is the reason.
func (d *disk) Failure() string { return "it cannot write to its disk" }

// Close closes the file.
func (d *disk) Close() error { return d.db.Close() }

// diskKey returns the key's name in the file. bbolt's limit for keys is lower than MaxCommit, so long keys are hashed.
func diskKey(key string) string {
	if len(key) <= 1<<10 {
		return "k" + key
	}
	hash := sha256.Sum256([]byte(key))
	return "h" + string(hash[:])
}
