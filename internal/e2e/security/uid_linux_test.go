package security

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// nobody is a user who owns nothing of the tests.
const nobody = 65534

// visitor connects to a worker store, writes and reads a key by torch's protocol, and prints what it read. Its
// arguments are HOST and PORT.
const visitor = `
import socket, struct, sys
store = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20)
text = lambda b: struct.pack("<Q", len(b)) + b
try:
    store.sendall(struct.pack("<BI", 0, 0x3C85F7CE) + b"\1" + text(b"key") + text(b"value") + b"\3" + text(b"key"))
    print(store.makefile("rb").read(8 + 5)[8:].decode() or "nothing")
except (BrokenPipeError, ConnectionResetError):
    print("nothing")
`

// visit runs the visitor as a user and returns what it read.
func visit(t testing.TB, uid uint32, addr string) string {
	t.Helper()
	host, port, _ := strings.Cut(addr, ":")
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", "-I", "-c", visitor, host, port)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("user %d visits %s: %v\n%s", uid, addr, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestForeignUser has a process of another user at the worker store of a job of one node, and at a separate store that
// only this machine can reach.
func TestForeignUser(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	dir := t.TempDir()
	file, where := filepath.Join(dir, "go"), filepath.Join(dir, "where")
	script := `echo "$MASTER_ADDR:$MASTER_PORT" >'` + where + `.new'; mv '` + where + `.new' '` + where + `'; ` + until(file)
	agent := start(t, "agent", command(t, "--rdzv-id="+run, "--no-python", "/bin/sh", "-c", script))
	testenv.Await(t, "the worker", bound, func() bool { _, err := os.Stat(where); return err == nil })
	workers, err := os.ReadFile(where)
	if err != nil {
		t.Fatal(err)
	}
	_, open := startStore(t, "", "--store-users=any")
	_, closed := startStore(t, "")
	_, named := startStore(t, "", "--store-users=65534")
	for _, tc := range []struct {
		name, addr string
		uid        uint32
		want       string
	}{
		{"this user at a job's store", strings.TrimSpace(string(workers)), 0, "value"},
		{"another user at a job's store", strings.TrimSpace(string(workers)), nobody, "nothing"},
		{"this user", closed, 0, "value"},
		{"another user", closed, nobody, "nothing"},
		{"another user, who is admitted", named, nobody, "value"},
		{"another user, all are admitted", open, nobody, "value"},
	} {
		if got := visit(t, tc.uid, tc.addr); got != tc.want {
			t.Errorf("%s reads %s, want %s", tc.name, got, tc.want)
		}
	}
	create(t, file)
	if code := agent.code(); code != 0 {
		t.Errorf("the agent ended with %d", code)
	}
}
