package hosts

import (
	"bytes"
	"context"
	"fmt"
	"maps"
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
	Name string // node0 and so on, which all hosts of the lab resolve, or the name that Reinstall gave
	Addr string // address of eth0, the only interface

	lab       *Lab
	namespace string
	port      string // the switch's end of the cable
	files     string // folder of files that replace those in /etc
}

// enter is a shell script that executes a command on the host. Its arguments are the host's folder of files, the host's
// name and the command. The command may replace /etc, as in-torch-root.sh does, which keeps a mounted /etc/hosts.
const enter = `
for file in "$1"/*; do
	[ ! -e "/etc/${file##*/}" ] || mount --bind "$file" "/etc/${file##*/}"
done
echo "$2" >/proc/sys/kernel/hostname
export HOSTNAME="$2"
shift 2
exec "$@"`

// Command is exec.CommandContext on the host. The started process executes program in place, so its process id, signals
// and exit code are those of program.
func (h *Host) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	wrapped := []string{
		h.entering(), "--", "unshare", "--uts", "--mount", "--",
		"/bin/sh", "-euc", enter, "sh", h.files, h.Name, program,
	}
	return exec.CommandContext(ctx, "nsenter", append(wrapped, args...)...)
}

// entering returns the argument that identifies a command which has not entered the namespace yet.
func (h *Host) entering() string { return "--net=" + filepath.Join(namespaceDir, h.namespace) }

// Reinstall turns an idle host into another machine, with a new name, a new address and new files in /etc, such as
// "hosts" and "resolv.conf". It does not change the hosts files of the other hosts.
func (h *Host) Reinstall(name, addr string, etc map[string]string) {
	h.lab.t.Helper()
	if running := h.Processes(); len(running) > 0 {
		h.lab.t.Fatalf("cannot reinstall %s while it runs %s", h.Name, running[0])
	}
	files := map[string]string{"hostname": name + "\n"}
	maps.Copy(files, etc)
	if err := h.write(files); err != nil {
		h.lab.t.Fatal(err)
	}
	h.lab.ip(h.namespace, "addr flush dev eth0", "addr add "+addr+"/24 dev eth0")
	h.Name, h.Addr = name, addr
}

// PowerOff cuts the cable and kills everything on the host. It returns when no process is left. Heal connects the cable
// again.
func (h *Host) PowerOff() {
	h.lab.t.Helper()
	h.Cut()
	h.Kill()
}

// Kill kills everything on the host. The kernel closes the connections of the processes, as it does when a container
// ends. Kill returns when no process is left.
func (h *Host) Kill() {
	h.lab.t.Helper()
	for _, p := range h.awaitEmpty(removeBound, true) {
		h.lab.t.Fatalf("cannot kill on %s: %s", h.Name, p)
	}
}

// Cut disconnects the cable at the switch: the host sees its link go down, other hosts see nothing.
func (h *Host) Cut() {
	h.lab.t.Helper()
	h.lab.ip(h.lab.prefix+switchName, "link set "+h.port+" down")
}

// Heal connects the cable to the main bridge again, and undoes Cut and Partition.
func (h *Host) Heal() {
	h.lab.t.Helper()
	h.lab.ip(h.lab.prefix+switchName, "link set "+h.port+" master "+mainBridge+" up")
}

// Process is a process on a host.
type Process struct {
	PID     int
	Command string // arguments, joined by spaces
}

func (p Process) String() string { return fmt.Sprintf("pid %d: %s", p.PID, p.Command) }

// Processes lists the processes on the host by process id, without zombies.
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
		// Errors mean that the process has ended. A command that has entered shows the namespace in ns/net.
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		net, _ := os.Readlink(filepath.Join("/proc", e.Name(), "ns/net"))
		if net == want || bytes.Contains(cmdline, []byte(h.entering()+"\x00")) {
			found = append(found, Process{pid, strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " "))})
		}
	}
	slices.SortFunc(found, func(a, b Process) int { return a.PID - b.PID })
	return found
}

// awaitEmpty waits until no process runs on the host, for at most bound, and returns the processes that it saw last.
// With kill it kills all processes that it sees, in each pass, so that it also ends processes that start meanwhile.
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
				_ = syscall.Kill(p.PID, syscall.SIGKILL) // fails if the process has ended since
			}
		}
		select {
		case <-ctx.Done():
			return left
		case <-again.C:
		}
	}
}
