package liveness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/internal/stacks"
)

// counter counts what is written to it.
type counter struct{ n atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// subject is a worker that runs a Python program, and the Watcher of it.
type subject struct {
	*Watcher
	cmd   *exec.Cmd
	quiet chan Quiet // what was reported
	done  sync.WaitGroup
}

// realTimeout is short, and long enough for a busy machine.
const realTimeout = 1500 * time.Millisecond

// watchProgram starts a command and a Watcher. The heartbeat file is in HEARTBEAT.
func watchProgram(t *testing.T, terminal bool, command ...string) *subject {
	t.Helper()
	var out counter
	beat := filepath.Join(t.TempDir(), "beat")
	s := &subject{Watcher: New(Options{Timeout: realTimeout}), quiet: make(chan Quiet, 100)}
	s.cmd = exec.Command(command[0], command[1:]...)
	s.cmd.Env = append(os.Environ(), "HEARTBEAT="+beat)
	if terminal {
		tty, err := pty.Start(s.cmd)
		if err != nil {
			t.Fatal(err)
		}
		s.done.Go(func() { _, _ = tty.WriteTo(&out) })
		t.Cleanup(func() { _ = tty.Close() })
	} else {
		s.cmd.Stdout, s.cmd.Stderr = &out, os.Stderr
		if err := s.cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	worker := Worker{PID: s.cmd.Process.Pid, Output: out.n.Load, Heartbeat: beat}
	s.done.Go(func() {
		s.Run(ctx, []Worker{worker}, func(q *Quiet) {
			if q != nil {
				s.quiet <- *q
			}
		})
	})
	t.Cleanup(func() {
		cancel()
		for _, p := range listProcesses(s.cmd.Process.Pid) {
			if process, err := os.FindProcess(p.id.pid); err == nil {
				_ = process.Kill()
			}
		}
		_ = s.cmd.Wait()
		s.done.Wait()
	})
	return s
}

// ran returns how much of the time has counted, and why it does not count at present.
func (s *subject) ran() (clock time.Duration, held string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == nil {
		return 0, ""
	}
	return s.node.clock, s.node.held()
}

// prelude comes before each program. It defines functions for the programs.
const prelude = `
import mmap, os, signal, socket, socketserver, subprocess, sys, threading, time
def block():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
def spin():
    while True:
        time.monotonic()
def fork(f):
    if os.fork() == 0:
        f()
def beat(text):
    with open(os.environ["HEARTBEAT"], "w") as f:
        f.write(text)
`

// endMain returns a program whose main thread ends, while another thread runs body.
func endMain(body string) string {
	return fmt.Sprintf(`
import ctypes
def work():
    %s
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(%d, 0)`, body, unix.SYS_EXIT)
}

// realWorkers are programs, and what the Watcher must find of them.
var realWorkers = []struct {
	name, program string
	// activity is what a close look finds once the worker is quiet; empty for a worker that is never quiet.
	activity   stacks.Activity
	sign       string // a sign that the worker shows again and again
	stuckChild string
	shell      bool // below a shell
	wakes      bool // it is at work for moments, in which a look finds another activity
}{
	{name: "blocked in a lock", program: "block()", activity: stacks.Blocked},
	{name: "blocked below a shell", program: "block()", activity: stacks.Blocked, shell: true},
	{name: "spins", program: "spin()", activity: stacks.Spinning},
	{name: "polls", program: "while True: time.sleep(0.05)", activity: stacks.Polling},
	{name: "a thread prints", program: `
def work():
    while True:
        print("waiting", flush=True)
        time.sleep(0.1)
threading.Thread(target=work).start()
block()`, activity: stacks.Blocked},
	{name: "stopped", program: "os.kill(os.getpid(), signal.SIGSTOP)", activity: stacks.Stopped},
	{
		name: "serves", program: "socketserver.TCPServer(('127.0.0.1', 0), None).serve_forever()",
		activity: stacks.Idle, wakes: true,
	},
	{
		name: "waits for a program", program: "subprocess.run(['sleep', '1000'], capture_output=True)",
		activity: stacks.Blocked,
	},
	{name: "without its main thread", program: endMain("block()"), activity: stacks.Blocked},
	{name: "without its main thread it prints", program: endMain(`
    while True:
        print("x", flush=True)
        time.sleep(0.1)`), sign: "output"},
	{name: "loaders spin", program: "fork(spin); block()", activity: stacks.Blocked},
	{
		name: "a child is stopped", program: "fork(lambda: os.kill(os.getpid(), signal.SIGSTOP)); os.wait()",
		activity: stacks.Blocked, stuckChild: "is stopped",
	},
	{name: "an old heartbeat", program: "beat('7'); block()", activity: stacks.Blocked},
	{name: "prints", program: "while True: print('x', flush=True); time.sleep(0.1)", sign: "output"},
	{name: "a wrapper", program: `
program = "import time\nwhile True: print('step', flush=True); time.sleep(0.1)"
subprocess.run([sys.executable, "-c", program])`, sign: "output"},
	{name: "a wrapper of what waits", program: `
subprocess.run([sys.executable, "-c", "import time; time.sleep(1000)"])`, activity: stacks.Blocked},
	{name: "receives into one buffer", activity: stacks.Moving, program: receiver("while True: client.sendall(b'x' * 65536); time.sleep(0.05)")},
	{name: "waits at a connection", activity: stacks.Blocked, program: receiver("client.sendall(b'x'); client.recv(1)")},
	{name: "heartbeats", program: "while True: beat(''); time.sleep(0.1)", sign: "heartbeat"},
	{name: "steps", program: "n = 0\nwhile True: beat(str(n)); n += 1; time.sleep(0.1)", sign: "step"},
	{name: "a compiler", program: "subprocess.run(['sh', '-c', 'while :; do :; done'])", sign: "child"},
	{name: "starts children", program: "while True: subprocess.run(['sleep', '0.2'])", sign: "child"},
	{name: "a download", program: `
fd = os.open("/dev/null", os.O_WRONLY)
while True:
    os.write(fd, bytes(32 << 10))
    time.sleep(0.1)`, sign: "bytes"},
	{name: "fills memory", program: `
zeros = bytes(4 << 20)
while True:
    mmap.mmap(-1, 4 << 20).write(zeros)
    time.sleep(0.1)`, sign: "faults"},
	{name: "computes", program: `
lines = "".join("x = sum(range(20000))\n" for _ in range(500))
code = compile(lines, "train.py", "exec")
while True: exec(code)`, sign: "frames"},
}

// receiver is a program that reads from a TCP connection for ever, and a child that sends.
func receiver(send string) string {
	return `
server = socket.create_server(("127.0.0.1", 0))
child = subprocess.Popen([sys.executable, "-c", """
import socket, sys, time
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
` + send + `""", str(server.getsockname()[1])])
connection, buffer = server.accept()[0], bytearray(1 << 20)
while True: connection.recv_into(buffer)`
}

// TestRealWorkers watches real processes of each kind.
func TestRealWorkers(t *testing.T) {
	t.Parallel()
	for _, tt := range realWorkers {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			command := []string{testenv.Python(t), "-c", prelude + tt.program}
			if tt.shell {
				command = append([]string{"sh", "-c", `"$@"; true`, "sh"}, command...)
			}
			s := watchProgram(t, false, command...)
			if tt.sign != "" {
				checkMoves(t, s, tt.sign)
				return
			}
			select {
			case q := <-s.quiet:
				if !q.Learned || q.Held != "" || q.For < realTimeout {
					t.Errorf("reported %+v", q)
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("the worker is not quiet: %+v", s.Signs())
			}
			life := s.Look(t.Context())[0]
			for looks := 1; tt.wakes && life.Activity != tt.activity && looks < 5; looks++ {
				life = s.Look(t.Context())[0]
			}
			if life.Activity != tt.activity || !strings.HasSuffix(life.StuckChild, tt.stuckChild) ||
				(life.StuckChild != "") != (tt.stuckChild != "") || life.Quiet < realTimeout.Seconds() {
				t.Errorf("looks like %+v, want %s", life, tt.activity)
			}
			if tt.name == "an old heartbeat" && (life.Step == nil || *life.Step != 7) {
				t.Errorf("step %v, want 7", life.Step)
			}
		})
	}
}

// checkMoves checks that the worker is never quiet, and that it shows the sign.
func checkMoves(t *testing.T, s *subject, sign string) {
	t.Helper()
	shown := false
	testenv.Await(t, fmt.Sprintf("two timeouts and the sign %q", sign), 60*time.Second, func() bool {
		name, _, _ := strings.Cut(s.Signs()[0].Sign, " ")
		shown = shown || name == sign
		clock, _ := s.ran()
		return shown && clock >= 2*realTimeout
	})
	if sign == childSign.String() { // on a busy machine a compiler may get less than a tenth of a core
		return
	}
	if len(s.quiet) > 0 {
		t.Errorf("quiet %d times", len(s.quiet))
	}
	if life := s.Look(t.Context())[0]; life.Activity != stacks.Moving {
		t.Errorf("looks like %+v", life)
	}
}

// A worker whose prompt waits for a person is not quiet, however long that takes.
func TestHeldAtTerminal(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ program, want string }{
		"pdb":   {"breakpoint()", "local rank 0: it is in the debugger "},
		"input": {"sys.stdin.readline()", "local rank 0: it waits for input from a terminal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := watchProgram(t, true, testenv.Python(t), "-c", prelude+tt.program)
			testenv.Await(t, "the prompt", 30*time.Second, func() bool {
				_, held := s.ran()
				return strings.HasPrefix(held, tt.want)
			})
			if life := s.Look(t.Context())[0]; life.Activity != stacks.Held || life.Held == "" {
				t.Errorf("looks like %+v", life)
			}
		})
	}
}

// A worker whose output nobody reads is held, and one that waits for the reader of another pipe is not.
func TestUnreadOutput(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		program string
		want    stacks.Activity
	}{
		"stdout":       {"while True: os.write(1, bytes(4096))", stacks.Held},
		"another pipe": {"pipe = os.pipe()\nwhile True: os.write(pipe[1], bytes(4096))", stacks.Blocked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(testenv.Python(t), "-c", prelude+tt.program)
			if _, err := cmd.StdoutPipe(); err != nil { // nobody reads it
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
			w := New(Options{Timeout: realTimeout})
			w.enter(newNode(realTimeout, []Worker{{PID: cmd.Process.Pid}}), []Worker{{PID: cmd.Process.Pid}})
			testenv.Await(t, "a full pipe", 30*time.Second, func() bool {
				return strings.HasSuffix(stacks.KernelWait(cmd.Process.Pid), "pipe_write")
			})
			if life := w.Look(t.Context())[0]; life.Activity != tt.want {
				t.Errorf("looks like %+v, want %s", life, tt.want)
			}
		})
	}
}

// Workers that end are no longer looked at.
func TestEndedWorker(t *testing.T) {
	s := watchProgram(t, false, "true")
	testenv.Await(t, "the end", 30*time.Second, func() bool {
		clock, _ := s.ran()
		return clock > 0 && len(s.Signs()) == 0
	})
	if lives := s.Look(t.Context()); len(lives) != 0 {
		t.Errorf("looks like %+v", lives)
	}
}
