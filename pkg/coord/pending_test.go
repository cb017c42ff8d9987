package coord

import (
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestPendingLeavesFiles checks that connections without a session leave enough files for the workers of an agent that
// hosts the store.
func TestPendingLeavesFiles(t *testing.T) {
	testenv.FileLimit(t, 400)
	s := NewServer(ServerOptions{})
	defer s.Close()
	if n := s.Limits().Pending; n != 100 {
		t.Errorf("of 400 files %d may belong to connections without a session, want 100", n)
	}
}
