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
// known. It returns "" if there is no such process.
func kernelState(pid int) (state, wait string) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	end := bytes.LastIndex(stat, []byte(") ")) // of the name, which may have any bytes
	if err != nil || end < 0 || end+2 >= len(stat) {
		return "", ""
	}
	letter := stat[end+2]
	if state = states[letter]; state == "" {
		state = string(rune(letter))
	}
	where, err := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", pid))
	if err == nil && string(where) != "0" {
		wait = string(where)
	}
	return state, wait
}

// descendants returns a process and up to limit of its descendants, the nearest first.
func descendants(pid, limit int) []int {
	found := []int{pid}
	for i := 0; i < len(found) && len(found) < limit; i++ {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", found[i]))
		for _, file := range files {
			data, _ := os.ReadFile(file)
			for field := range strings.FieldsSeq(string(data)) {
				if child, err := strconv.Atoi(field); err == nil && len(found) < limit {
					found = append(found, child)
				}
			}
		}
	}
	return found
}
