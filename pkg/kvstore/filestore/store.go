package filestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// Options are the options of a Store.
type Options struct {
	// Workers is the number of stores that are opened on the file during the whole job, by this process and by others,
	// this one included. The last of them to close removes the file. Zero or less means that the number is not fixed:
	// the file stays, and the caller removes it.
	Workers int
}

// Store is a [kvstore.Store] in a file. Use [Open].
//
// The file grows with every operation that writes, including each Delete. It never shrinks while it is in use. A file
// that an earlier job left behind is not empty: each job needs a file of its own.
//
// Store differs from torch's FileStore where that goes wrong or harms other users of the file:
//
//   - A file that ends within a record, because its writer was killed midway, is an ErrProtocol in every operation,
//     and no operation writes to it. torch's readers spin on such a file forever with its lock held, and torch's Set
//     appends records that nobody can read.
//   - A file that is removed or replaced while in use is an ErrConnection; one that is truncated is an ErrProtocol.
//     torch starts a new file and reads on at its old offset.
//   - Append always appends. torch's does nothing if the key already holds exactly the value to append.
//   - MultiSet and MultiGet are atomic. torch's take the lock for each key.
//   - Delete reports whether the key was present; torch always says yes. Both write the same record.
//
// An operation holds the file's lock only while it reads new records and writes its own, in one write. It waits for the
// lock until its context ends.
type Store struct {
	path    string
	workers int

	closing chan struct{} // closed when Close begins
	close   sync.Once
	closed  error // the result of Close

	// mu guards the fields below. It is held together with the file's lock, and never while waiting for that.
	mu     sync.Mutex
	file   *os.File // nil after Close
	reader *bufio.Reader
	log    *recordLog
}

var _ kvstore.Store = (*Store)(nil)

// errFileGone means that the path of an open file now leads elsewhere.
var errFileGone = fmt.Errorf(
	"%w: the file was removed or replaced while in use (the last store of a job removes it)", kvstore.ErrConnection)

// maxOpenAttempts limits how often the file may vanish while it is being opened.
const maxOpenAttempts = 100

// closeTimeout limits how long Close waits for the file's lock.
const closeTimeout = 10 * time.Second

// Open opens the store in the file at path. It creates the file if needed, but not its folder. Open registers one more
// user of the file, for which it waits for the file's lock until ctx ends. Close unregisters it.
//
// A file that does not belong to a store is an ErrProtocol and stays unchanged.
func Open(ctx context.Context, path string, opts Options) (*Store, error) {
	if path == "" {
		return nil, errors.New("open file store: the path is empty")
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open file store %q: %w", path, err)
	}
	// The last user of a file removes it, and may do so between open and lock of this store, more than once in a row.
	for range maxOpenAttempts {
		s, err := open(ctx, absolute, opts)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, errFileGone) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("open file store %q, tried %d times: %w", absolute, maxOpenAttempts, errFileGone)
}

func open(ctx context.Context, path string, opts Options) (*Store, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644) // the mode that torch uses; the umask applies
	if err != nil {
		return nil, fmt.Errorf("open file store: %w: %w", kvstore.ErrConnection, err)
	}
	s := &Store{
		path:    path,
		workers: opts.Workers,
		closing: make(chan struct{}),
		file:    file,
		reader:  bufio.NewReader(nil),
		log:     newRecordLog(),
	}
	err = s.withLock(ctx, exclusiveLock, s.closing, func() error {
		opened, err := s.counterRecord(refcountKey, 1)
		if err != nil {
			return err
		}
		return s.write(opened)
	})
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, fmt.Errorf("open file store %q: %w", path, err)
	}
	return s, nil
}

// Path returns the absolute path of the file.
func (s *Store) Path() string { return s.path }

// Close unregisters this store, and removes the file if this was the last of Workers. Operations in progress and later
// ones return ErrClosed; waits do so within 10 ms. If Close cannot get the file's lock within 10 s, it returns an
// ErrTimeout and the store stays registered. A file that is already gone is no error. A second Close returns the
// result of the first.
func (s *Store) Close() error {
	s.close.Do(func() {
		close(s.closing)
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err := s.withLock(ctx, exclusiveLock, nil, s.unregister)
		if errors.Is(err, errFileGone) {
			err = nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err = errors.Join(err, s.file.Close()); err != nil {
			s.closed = fmt.Errorf("close file store %q: %w", s.path, err)
		}
		s.file, s.log = nil, nil
	})
	return s.closed
}

// unregister is the part of Close that needs the lock. A process that opens the file meanwhile waits for the lock and
// then finds the file gone.
func (s *Store) unregister() error {
	shut, err := s.counterRecord(cleanupKey, 1)
	if err != nil {
		return err
	}
	open, err := s.counterRecord(refcountKey, -1)
	if err != nil {
		return err
	}
	if err := s.write(shut, open); err != nil {
		return err
	}
	total, _ := strconv.Atoi(string(shut.value))
	if s.workers <= 0 || string(open.value) != "0" || total < s.workers {
		return nil
	}
	return os.Remove(s.path)
}

// counterRecord returns the record that adds delta to one of the store's own counters.
func (s *Store) counterRecord(key string, delta int64) (record, error) {
	n, err := s.log.sum(key, delta)
	if err != nil {
		return record{}, fmt.Errorf("%w: user counter %q: %w", kvstore.ErrProtocol, key, err)
	}
	return record{key: key, value: strconv.AppendInt(nil, n, 10)}, nil
}

// withLock calls f with the file's lock held and all records replayed. It waits for the lock until ctx ends or stop is
// closed. f must not block.
func (s *Store) withLock(ctx context.Context, lock lockKind, stop <-chan struct{}, f func() error) error {
	for attempt := 0; ; attempt++ {
		done, err := s.tryWithLock(lock, stop, f)
		if done || err != nil {
			return err
		}
		if err := waitForRetry(ctx, stop, attempt); err != nil {
			return err
		}
	}
}

// tryWithLock does the same as withLock if the lock is free. Otherwise it returns false.
func (s *Store) tryWithLock(lock lockKind, stop <-chan struct{}, f func() error) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-stop:
		return false, kvstore.ErrClosed
	default:
	}
	if ok, err := lock.try(s.file); !ok {
		return false, err
	}
	defer func() { err = errors.Join(err, unlock(s.file)) }()
	if err := s.refresh(); err != nil {
		return true, err
	}
	return true, f()
}

// refresh replays the new records of the file. The lock is held, so nobody is writing: a record that is incomplete now
// will stay so.
func (s *Store) refresh() error {
	info, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("%w: %w", kvstore.ErrConnection, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: it is not a regular file: %v", kvstore.ErrProtocol, info.Mode())
	}
	switch now, err := os.Stat(s.path); {
	case errors.Is(err, fs.ErrNotExist), err == nil && !os.SameFile(now, info):
		return errFileGone
	case err != nil:
		return fmt.Errorf("%w: %w", kvstore.ErrConnection, err)
	}
	size := info.Size()
	if size < s.log.offset {
		return fmt.Errorf("%w: the file was truncated while in use: it has %d bytes, and had at least %d",
			kvstore.ErrProtocol, size, s.log.offset)
	}
	if size == s.log.offset {
		return nil
	}
	s.reader.Reset(io.NewSectionReader(s.file, s.log.offset, size-s.log.offset))
	return s.log.replay(s.reader, size)
}

// write appends records to the file, all or none, and applies them. It keeps their values.
func (s *Store) write(records ...record) error {
	if err := s.log.checkSize(records); err != nil {
		return err
	}
	var b []byte
	for _, r := range records {
		b = r.appendTo(b)
	}
	// A single call, so that a signal or a crash rarely falls in the middle of it.
	if _, err := s.file.WriteAt(b, s.log.offset); err != nil {
		// A full disk may have taken part of the records, which would make the file unreadable.
		return fmt.Errorf("write: %w", errors.Join(err, s.file.Truncate(s.log.offset)))
	}
	for _, r := range records {
		s.log.apply(r)
	}
	s.log.offset += int64(len(b))
	return nil
}
