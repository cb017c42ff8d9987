// Package oneshot runs a program that should end soon, such as a check, and bounds its time.
//
// [Command.Run] waits for the program and for its own goroutines. Only a program that hangs in the kernel survives;
// then one goroutine is left behind that waits for it. On Linux the kernel kills the program if this process is killed
// first. The package keeps no state, so all functions may be called concurrently.
package oneshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
)

// Command is a program to run once.
type Command struct {
	// Argv is the program and its arguments. The program is looked up on this process's PATH unless it has a slash.
	Argv []string
	// Env is the whole environment; nil means this process's own.
	Env []string
	// Dir is the working directory; empty means this process's own.
	Dir            string
	Stdin          io.Reader // nil means an empty one
	Stdout, Stderr io.Writer
	// Limit bounds the time of the program. It must be positive.
	Limit time.Duration
	// Alone says that nothing that the program started may outlive it, even if the program ends by itself. On Linux, Run
	// kills its process group and all processes with the environment mark that Run sets. Without Alone, processes that a
	// program leaves when it ends by itself keep running.
	Alone bool
}

// ErrLimit means that a program was killed because it took longer than its limit.
var ErrLimit = errors.New("no end")

// killGrace is how long Run waits after it has killed a program. On a busy machine this includes its search for the
// processes that the program left. A program that hangs in the kernel survives SIGKILL and is left behind.
const killGrace = 10 * time.Second

// outputGrace is how long Run waits for the end of the output after the program has ended, because a child may hold the
// output open.
const outputGrace = time.Second

// Run runs the program. After the limit, or when ctx ends, it kills the program's process group; the error then wraps
// ErrLimit or the cause of ctx. Other errors are those of [exec.Cmd], such as *exec.ExitError.
func (c Command) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Limit, fmt.Errorf("%w within %s", ErrLimit, seconds.Format(c.Limit)))
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Env, c.Dir, c.Stdin, c.Stdout, c.Stderr
	mark := newMark()
	if c.Alone {
		cmd.Env = append(cmd.Environ(), mark)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = outputGrace
	ended := make(chan error, 1)
	go func() { ended <- c.run(cmd, mark) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		select {
		case err = <-ended:
		case <-time.After(killGrace):
			if c.Alone {
				killLeft(0, mark)
			}
			return fmt.Errorf("%w, and it survives SIGKILL: it hangs in the kernel", context.Cause(ctx))
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay): // it exited with 0, and a child holds its output open
		return nil
	}
	return err
}

// run starts the program and waits for it. It kills the processes that the program left before it reaps the program,
// because until then no other process group can have the same number. The kernel kills a program also when the thread
// that started it ends, so run keeps its thread.
func (c Command) run(cmd *exec.Cmd, mark string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	if c.Alone && awaitExit(cmd.Process.Pid) {
		killLeft(cmd.Process.Pid, mark)
	}
	return cmd.Wait()
}

// Head is a writer that keeps the first MaxHead bytes that are written to it, and drops the rest. Its zero value is
// ready.
type Head struct {
	kept []byte
	cut  bool
}

// MaxHead is how much a Head keeps, in bytes.
const MaxHead = 1 << 20

// Write implements [io.Writer].
func (h *Head) Write(p []byte) (int, error) {
	h.cut = h.Keep(p) < len(p) || h.cut
	return len(p), nil
}

// Keep appends the start of p, as far as MaxHead allows, and returns the number of bytes that it appended.
func (h *Head) Keep(p []byte) (n int) {
	n = min(len(p), MaxHead-len(h.kept))
	h.kept = append(h.kept, p[:n]...)
	return n
}

// String returns what is kept.
func (h *Head) String() string { return string(h.kept) }

// Cut reports whether Write has dropped something.
func (h *Head) Cut() bool { return h.cut }

// Tail is a writer that keeps the last keptBytes bytes that are written to it. Its zero value is ready.
type Tail struct{ kept []byte }

const keptBytes = 4 << 10

// Write implements [io.Writer].
func (t *Tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-keptBytes):]...)
	t.kept = t.kept[max(0, len(t.kept)-keptBytes):]
	return len(p), nil
}

// String returns what is kept.
func (t *Tail) String() string { return string(t.kept) }

// LastLine returns the last line that is not blank, at most its first 300 bytes.
func (t *Tail) LastLine() string {
	text := strings.TrimSpace(string(t.kept))
	text = text[strings.LastIndexByte(text, '\n')+1:]
	return text[:min(len(text), 300)]
}
