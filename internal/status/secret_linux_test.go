package status

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/internal/jobs"
)

// Another user does not get the secret: the folder's mode keeps him out, and the socket refuses him even if the modes
// of files let him in.
func TestSecretOfOtherUser(t *testing.T) {
	testenv.Root(t) // to be another user
	machine := jobs.Folders{t.TempDir()}
	launcherWithSecret(t, machine, "slurm-12.0")
	sockets, err := filepath.Glob(filepath.Join(machine[0], "*", "job-*.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatal(sockets, err)
	}
	folder := filepath.Dir(sockets[0])
	if err := os.Chmod(filepath.Dir(machine[0]), 0o755); err != nil { //nolint:gosec // it holds files of tests alone
		t.Fatal(err)
	}
	const other = 65534
	if reply, err := askAs(t, other, sockets[0]); !errors.Is(err, syscall.EACCES) || reply != "" {
		t.Errorf("with the modes as they are: %q, %v", reply, err)
	}
	if err := errors.Join(os.Chmod(folder, 0o711), os.Chmod(sockets[0], 0o666)); err != nil { //nolint:gosec // the point
		t.Fatal(err)
	}
	if reply, err := askAs(t, other, sockets[0]); reply != "" {
		t.Errorf("with open modes: %q, %v", reply, err)
	}
	if reply, err := askAs(t, 0, sockets[0]); err != nil || !strings.Contains(reply, drawn) {
		t.Errorf("the same user: %q, %v", reply, err)
	}
}

// askAs requests the secret as another user. It returns the reply, or why there is none.
func askAs(t *testing.T, uid int, socket string) (reply string, err error) {
	t.Helper()
	testenv.AsUser(t, uid, func() {
		var fd int
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		defer unix.Close(fd)
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
			return
		}
		// The server may have closed the connection already: MSG_NOSIGNAL makes that an error.
		err = unix.Sendto(fd, []byte("GET /secret HTTP/1.0\r\n\r\n"), unix.MSG_NOSIGNAL, nil)
		buffer := make([]byte, 1024)
		for n := 1; err == nil && n > 0; reply += string(buffer[:max(n, 0)]) {
			n, err = unix.Read(fd, buffer)
		}
	})
	return reply, err
}
