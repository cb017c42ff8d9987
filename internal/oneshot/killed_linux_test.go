package oneshot

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// A process that is killed while it runs a program leaves none behind: the program's end of a pipe is closed.
func TestRunEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	const inChild = "ONESHOT_TEST_CHILD"
	if os.Getenv(inChild) != "" {
		c := Command{Argv: []string{"sh", "-c", "echo up; exec sleep 100"}, Stdout: os.Stdout, Limit: time.Minute}
		t.Fatal(c.Run(t.Context()))
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRunEndsWithTheProcess$")
	child.Env, child.Stdout = append(os.Environ(), inChild+"=1"), w
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	_ = r.SetReadDeadline(time.Now().Add(30 * time.Second))
	lines := bufio.NewReader(r)
	if line, err := lines.ReadString('\n'); err != nil || line != "up\n" {
		t.Errorf("%q, %v", line, err)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if rest, err := io.ReadAll(lines); err != nil {
		t.Errorf("%q, %v: the program lives on", rest, err)
	}
}
