package elastic

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// Another user is not served, even if the modes of files would let it connect.
func TestLocalOtherUser(t *testing.T) {
	testenv.Root(t)
	l, socket := newLocalAgents(t)
	if _, err := l.open(socket); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(socket)
	if err := errors.Join(
		os.Chmod(socket, 0o777), os.Chmod(dir, 0o777), os.Chmod(filepath.Dir(dir), 0o755), //nolint:gosec // that is the point
	); err != nil {
		t.Fatal(err)
	}
	testenv.AsUser(t, 65534, func() {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Error("the connection of another user was not closed")
		}
	})
}
