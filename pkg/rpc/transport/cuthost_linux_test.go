package transport

import (
	"bufio"
	"os"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestCutHost cuts the network of a host whose processes continue. Both ends of a watch notice it within seconds, and
// so does a new call.
func TestCutHost(t *testing.T) {
	t.Parallel()
	lab := hosts.New(t, 2)
	addr := lab.Hosts[1].Addr + ":7000"
	server := startRole(t, lab.Hosts[1], "server", addr)
	server.expect(t, "listening")
	client := startRole(t, lab.Hosts[0], "client", addr)
	client.expect(t, "begun")
	server.expect(t, "watched")
	lab.Hosts[1].Cut()
	start := time.Now()
	client.expect(t, "lost")
	t.Logf("the watcher noticed it after %v", time.Since(start))
	server.expect(t, "lost")
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("both ends noticed it after %v", took)
	} else {
		t.Logf("both ends after %v", took)
	}
	start = time.Now()
	client.expect(t, "unreachable")
	t.Logf("a new call failed after %v", time.Since(start))
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("a new call took %v", took)
	}
}

// role is a process on a host that prints its progress in lines.
type role struct{ lines *bufio.Scanner }

func startRole(t *testing.T, host *hosts.Host, name, addr string) role {
	t.Helper()
	cmd := host.Command(t.Context(), os.Args[0], addr)
	cmd.Env = append(os.Environ(), roleVariable+"="+name)
	cmd.Stderr = os.Stderr
	out := testenv.StartWithOutput(t, cmd)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return role{bufio.NewScanner(out)}
}

func (r role) expect(t *testing.T, want string) {
	t.Helper()
	if !r.lines.Scan() || r.lines.Text() != want {
		t.Fatalf("got %q, want %q", r.lines.Text(), want)
	}
}
