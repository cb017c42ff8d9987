package main

import (
	"bytes"
	"errors"
	"os/exec"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestLogsAtTerminal: a terminal gets colors and text; a pipe gets what was written.
func TestLogsAtTerminal(t *testing.T) {
	dir, binary := t.TempDir(), testenv.Binary(t)
	launch := exec.Command(binary, "--log-dir", dir, "-r1", "--no-python", "printf",
		`\033[31mred\033[0m \033]0;title\007\342\200\256done\n`)
	if out, err := launch.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	logs := func() *exec.Cmd { return exec.Command(binary, "logs", "--no-prefix", dir+"/latest") }
	piped, err := logs().Output()
	if want := "\x1b[31mred\x1b[0m \x1b]0;title\a\u202edone\n"; string(piped) != want || err != nil {
		t.Errorf("a pipe gets %q, %v; want %q", piped, err, want)
	}
	atTerminal := logs()
	tty, err := pty.Start(atTerminal)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tty.Close() }()
	var shown bytes.Buffer
	_, err = shown.ReadFrom(tty)
	if err != nil && !errors.Is(err, syscall.EIO) { // which is the end
		t.Error(err)
	}
	if err := atTerminal.Wait(); err != nil {
		t.Error(err)
	}
	if want := "\x1b[31mred\x1b[0m ^[]0;title^G\\u202edone\x1b[0m\r\n"; shown.String() != want {
		t.Errorf("a terminal gets %q; want %q", shown.String(), want)
	}
}
