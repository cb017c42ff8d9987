package coord

import (
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestPendingLeavesFiles checks that connections without a session cannot take the files that an agent which hosts the
// store needs for its workers.
func TestPendingLeavesFiles(t *testing.T) {
	testenv.FileLimit(t, 400)
	s := NewServer(ServerOptions{})
	defer s.Close()
	if n := s.Limits().Pending; n != 100 {
		t.Errorf("of 400 files %d may belong to connections without a session, want 100", n)
	}
}
