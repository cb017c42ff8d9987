package certfiles

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config/safefile"
	"github.com/elasticrun/elasticrun/internal/plainerr"
	"github.com/elasticrun/elasticrun/internal/printable"
)

// Set is the content of a site's files. Open makes one.
type Set struct {
	files Files
	log   zerolog.Logger

	versions versions                       // used by readNews only, and by Open
	readNews func() (*Content, news, error) // set.readFiles, except in tests

	mu      sync.Mutex // guards the fields below; nobody waits for a file while holding it
	content *Content
	looking chan struct{} // closed when the current check of the files ends; nil without a check
	since   time.Time     // when the current check began
	warned  bool          // the log already says that the current check takes too long
}

// Open reads the files. Its error tells people which file is unusable, and why.
func Open(files Files, log zerolog.Logger) (*Set, error) {
	s := &Set{files: files, log: log}
	s.readNews = s.readFiles
	content, now, err := s.read()
	if err != nil {
		return nil, err
	}
	s.content = content
	s.versions.read(now, time.Now(), true)
	return s, nil
}

// Files returns the files' names, or none for a nil Set.
func (s *Set) Files() Files {
	if s == nil {
		return Files{}
	}
	return s.files
}

// Content returns the present content of the files. If they are unusable, it returns the content before, and logs one
// warning until they are usable again. It does the same if the files do not answer within lookTimeout, for example
// because a file server hangs. The result is the same pointer as before if the files have not changed.
func (s *Set) Content() *Content {
	for began := false; !began; {
		s.mu.Lock()
		if began = s.looking == nil; began { // a check that runs already may have begun before the files changed
			s.looking, s.since, s.warned = make(chan struct{}), time.Now(), false
			go s.look(s.looking)
		}
		done, late := s.looking, time.NewTimer(lookTimeout-time.Since(s.since))
		s.mu.Unlock()
		select {
		case <-done:
			late.Stop()
		case <-late.C:
			return s.contentMeanwhile()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.content
}

// lookTimeout is how long a handshake waits for the files.
const lookTimeout = time.Second

// contentMeanwhile returns the content in use while the files do not answer.
func (s *Set) contentMeanwhile() *Content {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looking != nil && !s.warned {
		s.warned = true
		s.log.Warn().Msg("the certificates' files do not answer: the certificates read last stay in use")
	}
	return s.content
}

// look checks the files, and reads them if they may have changed. It closes done at its end. Only one look runs at a
// time. Nobody waits for it longer than lookTimeout, because nothing ends a system call that hangs.
func (s *Set) look(done chan struct{}) {
	content, news, err := s.readNews()
	s.mu.Lock()
	defer s.mu.Unlock()
	if content != nil {
		s.content = content
	}
	s.logNews(news, err)
	s.looking = nil
	close(done)
}

// readFiles reads the files if they may have changed. The content is nil if they have not changed or are unusable.
func (s *Set) readFiles() (*Content, news, error) {
	if !s.versions.mustRead(s.stamps()) {
		return nil, nothing, nil
	}
	content, now, err := s.read()
	return content, s.versions.read(now, time.Now(), err == nil), err
}

// logNews logs the result of a check.
func (s *Set) logNews(news news, err error) {
	switch news {
	case unusable:
		s.log.Warn().Msgf("the new certificates are not used, and the ones before stay in use: %v", err)
	case replaced:
		s.log.Info().Msg("the certificates' files have changed: the new ones are in use")
	}
}

// read reads the files, and repeats that if they change meanwhile. A certificate and its key may be replaced one after
// the other, or together by one symbolic link.
func (s *Set) read() (content *Content, now stamps, err error) {
	const attempts = 3
	for range attempts {
		now = s.stamps()
		content, err = s.files.load(time.Now())
		if s.stamps() == now {
			break
		}
	}
	return content, now, err
}

// stamps returns the stamps of the files.
func (s *Set) stamps() (now stamps) {
	for i, name := range []string{s.files.Cert, s.files.Key, s.files.CA} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			continue
		}
		now[i] = stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
		if system, ok := info.Sys().(*syscall.Stat_t); ok {
			now[i].inode = system.Ino
		}
	}
	return now
}

// maxFile is the size of the largest file that is read, in bytes.
const maxFile = 1 << 20

// readFile reads a file. what describes the expected content to people. Only this user and root may be able to read a
// secret file.
func readFile(what, path string, secret bool) ([]byte, error) {
	fail := func(err error) error {
		return fmt.Errorf("the %s %s cannot be read: %s", what, printable.Quote(path), plainerr.Text(err))
	}
	f, err := safefile.Open(path, false)
	if err != nil {
		return nil, fail(err)
	}
	defer func() { _ = f.Close() }()
	if d := f.Disclosure; secret && d.How != "" {
		return nil, fmt.Errorf("the %s %s is no secret: %s: %s", what, printable.Quote(path), d.How, d.Remedy)
	}
	text, err := f.ReadAll(maxFile, 0)
	switch {
	case errors.Is(err, safefile.ErrTooLarge):
		return nil, fmt.Errorf("the %s %s is larger than 1 MiB", what, printable.Quote(path))
	case err != nil:
		return nil, fail(err)
	}
	return text, nil
}
