package proctree

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// StatusField returns the value of a field in /proc/PID/status (proc_pid_status(5)), such as "Uid:"; empty if status
// does not have the field.
func StatusField(status []byte, name string) string {
	for line := range bytes.Lines(status) {
		if value, ok := bytes.CutPrefix(line, []byte(name)); ok {
			return string(bytes.TrimSpace(value))
		}
	}
	return ""
}

// SignalSet reports whether a set of signals in a process's status, such as "SigIgn:", contains sig. Without /proc it
// returns false.
func SignalSet(pid int, name string, sig syscall.Signal) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return hasSignal(status, name, sig)
}

func hasSignal(status []byte, name string, sig syscall.Signal) bool {
	set, err := strconv.ParseUint(StatusField(status, name), 16, 64)
	return err == nil && set&(1<<(sig-1)) != 0
}
