package siginfo

import (
	"fmt"
	"os"
	"strings"

	"github.com/elasticrun/elasticrun/internal/printable"
)

// maxCommand bounds a command line, in bytes.
const maxCommand = 200

// commandOf returns the kernel's name of a process and its command line; "" if it has ended.
func commandOf(pid int) (name, command string) {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "", ""
	}
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args = args[:min(len(args), maxCommand)]
	name = printable.Line(strings.TrimSuffix(string(comm), "\n"))
	return name, printable.Line(strings.TrimSpace(strings.ReplaceAll(string(args), "\x00", " ")))
}
