package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

// server is a store server in a process of its own, on 127.0.0.1.
type server struct {
	name  string
	port  int
	pid   int
	cmd   *exec.Cmd
	stdin io.Closer
}

// The servers that have targets, or that others are compared with.
const (
	ours  = "ours"
	torch = "torch"
	libuv = "libuv"
	floor = "floor"
)

//go:embed floor/floor.c
var floorSource []byte

// torchServer prints its port and ends when its standard input does. Its argument is "libuv", or anything else.
const torchServer = `
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, use_libuv=sys.argv[1] == "libuv", wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()`

// serve runs the server "ours". Like the others, it ends with its standard input.
func serve(in io.Reader, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := tcpstore.NewServer(tcpstore.ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	fmt.Fprintln(out, listener.Addr())
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, kvstore.ErrClosed) {
		return err
	}
	return nil
}

// commands returns the command of each server; ctx ends them. It reports and leaves out a server that is not
// available.
func commands(ctx context.Context, dir string) (map[string][]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	found := map[string][]string{ours: {self, "serve"}}

	cache := os.Getenv("ELASTICRUN_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		cache = filepath.Join(user, "elasticrun")
	}
	for name, install := range map[string]struct{ python, script string }{
		torch: {"python-2.14", "scripts/torch-root.sh forky"},
		libuv: {"python-official", "scripts/torch-official.sh"},
	} {
		python := filepath.Join(cache, "bin", install.python)
		if _, err := os.Stat(python); err == nil {
			found[name] = []string{python, "-c", torchServer, name}
		} else {
			fmt.Fprintf(os.Stderr, "%s is left out: install it with %s\n", name, install.script)
		}
	}

	program := filepath.Join(dir, "floor")
	cc := exec.CommandContext(ctx, "cc", "-O2", "-Wall", "-Wextra", "-x", "c", "-o", program, "-")
	cc.Stdin, cc.Stderr = bytes.NewReader(floorSource), os.Stderr
	if err := cc.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "the floor is left out: compile it:", err)
	} else {
		found[floor] = []string{program}
	}
	return found, nil
}

// start returns a server that is ready. The first line that it prints must end with its port.
func start(ctx context.Context, name string, command []string) (*server, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // this process handles interrupts
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{name: name, pid: cmd.Process.Pid, cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err == nil {
		s.port, err = strconv.Atoi(regexp.MustCompile(`\d*$`).FindString(strings.TrimSpace(line)))
	}
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("start %s: wanted a line with a port, got %q: %w", name, line, err)
	}
	return s, nil
}

// startAll returns servers that are all ready.
func startAll(ctx context.Context, names []string, commands map[string][]string) ([]*server, error) {
	var servers []*server
	for _, name := range names {
		s, err := start(ctx, name, commands[name])
		if err != nil {
			stopAll(servers)
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

func stopAll(servers []*server) {
	for _, s := range servers {
		s.stop()
	}
}

// stop kills the server; nothing of it is needed any more.
func (s *server) stop() {
	s.stdin.Close()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// cpu returns the CPU time that all threads of a process, ended ones included, have used, in nanoseconds.
func cpu(pid int) (time.Duration, error) {
	// The kernel's number for the CPU clock of a process.
	clock := int32(^pid)<<3 | 2
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// memory returns the resident memory of a process and its proportional share, in bytes.
func memory(pid int) (rss, pss float64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 3 {
			switch f[0] {
			case "Rss:":
				rss, err = strconv.ParseFloat(f[1], 64)
			case "Pss:":
				pss, err = strconv.ParseFloat(f[1], 64)
			}
		}
	}
	return rss * 1024, pss * 1024, err
}

// busy returns the time that all CPUs of the machine were busy or stolen.
func busy() (time.Duration, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	var user, nice, system, idle, iowait, irq, softirq, steal int64
	_, err = fmt.Sscanf(string(data), "cpu %d %d %d %d %d %d %d %d",
		&user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal)
	const tick = 10 * time.Millisecond
	return time.Duration(user+nice+system+irq+softirq+steal) * tick, err
}
