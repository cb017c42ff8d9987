package stacks

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// states are the words for the kernel's letters (proc_pid_stat(5)).
var states = map[byte]string{
	'R': "running", 'S': "sleeping", 'D': "disk sleep", 'T': "stopped", 't': "traced", 'Z': "zombie", 'I': "idle",
}

// kernelState returns the state of a process's main thread, and the kernel function in which it sleeps if that is
// known. If the main thread has ended and others run, it is that of the first of them. It returns "" if there is no
// such process.
func kernelState(pid int) (state, wait string) {
	dir := fmt.Sprintf("/proc/%d", pid)
	letter := stateLetter(dir)
	if letter == 'Z' {
		tasks, _ := filepath.Glob(dir + "/task/*")
		for _, task := range tasks {
			if other := stateLetter(task); other != 0 && other != 'Z' && other != 'X' {
				dir, letter = task, other
				break
			}
		}
	}
	if letter == 0 {
		return "", ""
	}
	if state = states[letter]; state == "" {
		state = string(rune(letter))
	}
	return state, waitIn(dir)
}

// KernelWait returns the kernel function in which a process's main thread sleeps; "" if that is not known.
func KernelWait(pid int) string { return waitIn(fmt.Sprintf("/proc/%d", pid)) }

// waitIn returns the kernel function in which a process or thread sleeps, by its folder.
func waitIn(dir string) string {
	where, err := os.ReadFile(dir + "/wchan")
	if err != nil || string(where) == "0" {
		return ""
	}
	return string(where)
}

// Children returns the children of all threads of a process.
func Children(pid int) (children []int) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// stateLetter returns the state of a process or thread, by its folder; 0 if there is none.
func stateLetter(dir string) byte {
	stat, err := os.ReadFile(dir + "/stat")
	end := bytes.LastIndex(stat, []byte(") ")) // of the name, which may have any bytes
	if err != nil || end < 0 || end+2 >= len(stat) {
		return 0
	}
	return stat[end+2]
}

// processName returns the kernel's name of a process; "" if there is none.
func processName(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSuffix(string(name), "\n")
}

// descendants returns a process and up to limit of its descendants, the nearest first.
func descendants(pid, limit int) []int {
	found := []int{pid}
	for i := 0; i < len(found) && len(found) < limit; i++ {
		children := Children(found[i])
		found = append(found, children[:min(len(children), limit-len(found))]...)
	}
	return found
}
