package certfiles

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// TestFilesHang uses files on a file server that hangs. The latest content stays in use, nobody waits long for the new
// content, and the log reports the problem once. When the file server is back, the new content is used.
func TestFilesHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &strings.Builder{}
		first, second, back := &Content{}, &Content{}, make(chan struct{})
		s := &Set{content: first, log: zerolog.New(log)}
		s.readNews = func() (*Content, news, error) {
			<-back
			return second, replaced, nil
		}
		began := time.Now()
		for range 3 {
			if s.Content() != first {
				t.Error("the content has changed")
			}
		}
		if took := time.Since(began); took != lookTimeout {
			t.Errorf("three handshakes wait %v, want %v", took, lookTimeout)
		}
		if n := strings.Count(log.String(), "do not answer"); n != 1 {
			t.Errorf("%d warnings, want 1: %s", n, log)
		}
		close(back)
		synctest.Wait()
		if s.Content() != second {
			t.Error("the new content is not used")
		}
	})
}
