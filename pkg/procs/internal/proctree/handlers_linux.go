package proctree

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// maxWrappers is how many programs may be between a worker and the program that does its work.
const maxWrappers = 16

// SignalHandler returns the process that catches sig or has blocked it to receive it with signalfd or sigwait: pid, or,
// if pid is a wrapper such as a shell script, the program inside. A Python is never a wrapper: its children are its
// helpers. handler is 0 if no process or several children of one wrapper handle the signal. ok is false if the status
// of pid cannot be read.
func SignalHandler(pid int, sig syscall.Signal) (handler int, ok bool) {
	if !ProcIsOurs() {
		return 0, false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	return handlerBelow(pid, status, sig, maxWrappers), true
}

// handlerBelow returns the process that handles sig: pid, which has that status, or one that it wraps; 0 for none.
func handlerBelow(pid int, status []byte, sig syscall.Signal, depth int) (handler int) {
	if takesSignal(status, sig) {
		return pid
	}
	if depth == 0 || isPython(pid) {
		return 0
	}
	for _, child := range children(pid) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", child))
		if err != nil {
			continue
		}
		found := handlerBelow(child, status, sig, depth-1)
		switch {
		case found != 0 && handler != 0:
			return 0
		case found != 0:
			handler = found
		}
	}
	return handler
}

// takesSignal reports whether a process with this status catches sig, or has blocked it for signalfd or sigwait. The C
// library, Python and shells block all signals for a moment when they start a process or a thread. Then SIGSEGV, which
// no program waits for, is blocked too, and sig would kill the process later.
func takesSignal(status []byte, sig syscall.Signal) bool {
	return hasSignal(status, "SigCgt:", sig) ||
		hasSignal(status, "SigBlk:", sig) && !hasSignal(status, "SigBlk:", syscall.SIGSEGV)
}

// isPython reports whether a process runs a program that is called python.
func isPython(pid int) bool {
	program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return strings.HasPrefix(filepath.Base(program), "python")
}

// children returns the children of all threads of a process.
func children(pid int) (pids []int) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}
