package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Host is one machine of a lab.
type Host struct {
	Name string // node0, ..., which all hosts of the lab know; or what Reinstall has called it
	Addr string // of its one interface, eth0

	lab       *Lab
	namespace string
	port      string // the other end of its cable
	files     string // what lies over the machine's own in /etc
}

// enter becomes a command of the host: $1 its files, $2 its name, then the command. It may replace /etc, as
// in-torch-root.sh does: that keeps a mounted /etc/hosts.
const enter = `
for file in "$1"/*; do
	[ ! -e "/etc/${file##*/}" ] || mount --bind "$file" "/etc/${file##*/}"
done
echo "$2" >/proc/sys/kernel/hostname
export HOSTNAME="$2"
shift 2
exec "$@"`

// Command is exec.CommandContext on the host. The process that is started becomes the program itself, so its id,
// signals and exit code are the program's.
func (h *Host) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	wrapped := []string{
		h.entering(), "--", "unshare", "--uts", "--mount", "--",
		"/bin/sh", "-euc", enter, "sh", h.files, h.Name, program,
	}
	return exec.CommandContext(ctx, "nsenter", append(wrapped, args...)...)
}

// entering is the argument by which a command is known that is not in the namespace yet.
func (h *Host) entering() string { return "--net=" + filepath.Join(namespaceDir, h.namespace) }

// PowerOff pulls the cable and kills everything on the host. It returns when nothing runs there any more; Heal
// plugs the cable in again.
func (h *Host) PowerOff() {
	h.lab.t.Helper()
	h.Cut()
	h.Kill()
}

// Kill kills everything on the host, whose kernel closes its connections, as that of a machine does where a container ends. It returns when
// nothing runs there any more.
func (h *Host) Kill() {
	h.lab.t.Helper()
	for _, p := range h.awaitEmpty(removeBound, true) {
		h.lab.t.Fatalf("cannot kill on %s: %s", h.Name, p)
	}
}

// Cut pulls the cable out of the switch: the host sees its link go down, nobody else sees anything.
func (h *Host) Cut() {
	h.lab.t.Helper()
	h.lab.ip(h.lab.prefix+switchName, "link set "+h.port+" down")
}

// Heal plugs the cable in again, into the switch where all are, and ends what Delay asked for.
func (h *Host) Heal() {
	h.lab.t.Helper()
	h.lab.ip(h.lab.prefix+switchName, "link set "+h.port+" master "+mainBridge+" up")
	_, _ = run("", "tc", "-netns", h.namespace, "qdisc", "delete", "dev", "eth0", "root") // there may be none
}

// ErrNoDelay says that the kernel cannot delay or lose packets on purpose.
var ErrNoDelay = errors.New("the kernel has no netem")

// Delay makes each packet that the host sends late by d, and loses the given share of them, 0 to 1. It returns
// ErrNoDelay where the kernel cannot do that.
func (h *Host) Delay(d time.Duration, loss float64) error {
	_, err := run("", "tc", "-netns", h.namespace, "qdisc", "replace", "dev", "eth0", "root", "netem",
		"delay", fmt.Sprintf("%dus", d.Microseconds()), "loss", fmt.Sprintf("%.3f%%", 100*loss))
	if err != nil && strings.Contains(err.Error(), "qdisc kind is unknown") {
		return ErrNoDelay
	}
	return err
}

// Process is one that runs on a host.
type Process struct {
	PID     int
	Command string // its arguments, joined by spaces
}

func (p Process) String() string { return fmt.Sprintf("pid %d: %s", p.PID, p.Command) }

// Processes lists what runs on the host, by process id. Zombies are not seen.
func (h *Host) Processes() []Process {
	var on syscall.Stat_t
	if err := syscall.Stat(filepath.Join(namespaceDir, h.namespace), &on); err != nil {
		return nil // the namespace has been deleted
	}
	want := fmt.Sprintf("net:[%d]", on.Ino)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		panic("hosts: a machine with network namespaces has no /proc: " + err.Error())
	}
	var found []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// Errors mean that it has ended. A command that does not look as if it was entering has entered.
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		net, _ := os.Readlink(filepath.Join("/proc", e.Name(), "ns/net"))
		if net == want || bytes.Contains(cmdline, []byte(h.entering()+"\x00")) {
			found = append(found, Process{pid, strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " "))})
		}
	}
	slices.SortFunc(found, func(a, b Process) int { return a.PID - b.PID })
	return found
}

// awaitEmpty waits until nothing runs on the host, or for the bound, and returns what was seen last. It may kill
// what it sees, so that what is just being started goes too.
func (h *Host) awaitEmpty(bound time.Duration, kill bool) []Process {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		left := h.Processes()
		if len(left) == 0 {
			return nil
		}
		for _, p := range left {
			if kill {
				_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may have ended just now
			}
		}
		select {
		case <-ctx.Done():
			return left
		case <-again.C:
		}
	}
}
