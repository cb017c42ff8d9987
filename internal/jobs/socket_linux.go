package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/userdir"
)

// path returns the path of a file in f. It leads into the folder that was opened, even if its name has changed since.
func (f *folder) path(name string) string {
	return filepath.Join(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), name)
}

// peerPID returns the process at the other end of a socket; 0 if it is unknown, or in another pid namespace.
func peerPID(fd int) int {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}

// readProcess returns the parent and the user of a process; -1 as its user if it is unknown.
func readProcess(pid int) (parent, uid int) {
	proc := fmt.Sprintf("/proc/%d", pid)
	info, err := os.Stat(proc)
	if err != nil {
		return 0, -1
	}
	if _, parent, err = readStat(pid); err != nil {
		return 0, -1
	}
	return parent, userdir.Owner(info)
}

// readStat returns the state and the parent of a process, as in proc_pid_stat(5).
func readStat(pid int) (state string, parent int, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, err
	}
	name := strings.LastIndexByte(string(stat), ')') // the name may contain anything
	_, err = fmt.Sscan(string(stat[name+1:]), &state, &parent)
	return state, parent, err
}

// IsStopped reports whether a process is stopped by a signal, as after Ctrl-Z. One that a debugger has stopped does not
// count.
func IsStopped(pid int) bool {
	state, _, err := readStat(pid)
	return err == nil && state == "T"
}
