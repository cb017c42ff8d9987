package evidence

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// findCore says where the kernel has dumped the memory of a process that a signal ended. dir is the process's working
// directory, since is when it started, and root is the file system of the machine.
func findCore(root fs.FS, pid int, sig syscall.Signal, dir string, since time.Time) string {
	pattern, err := fs.ReadFile(root, "proc/sys/kernel/core_pattern")
	if err != nil {
		return "core dumped"
	}
	usesPID, _ := fs.ReadFile(root, "proc/sys/kernel/core_uses_pid")
	glob, text := coreGlob(strings.TrimSpace(string(pattern)), strings.TrimSpace(string(usesPID)) == "1", pid, sig)
	if glob == "" {
		return text
	}
	if !filepath.IsAbs(glob) {
		glob = filepath.Join(dir, glob)
	}
	found, _ := filepath.Glob(glob)
	newest, at := "", since
	for _, name := range found {
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && !info.ModTime().Before(at) {
			newest, at = name, info.ModTime()
		}
	}
	if newest == "" {
		return text
	}
	return "core: " + newest
}

// coreGlob turns a core_pattern, see core(5), into a pattern for file names, with a star for each unknown part. It is
// empty if the kernel writes no file. text says what is known without looking for the file.
func coreGlob(pattern string, usesPID bool, pid int, sig syscall.Signal) (glob, text string) {
	if program, piped := strings.CutPrefix(pattern, "|"); piped {
		name, _, _ := strings.Cut(strings.TrimSpace(program), " ")
		if strings.Contains(name, "systemd-coredump") {
			return "", fmt.Sprintf("core: coredumpctl info %d", pid)
		}
		return "", "core piped to " + name
	}
	var b strings.Builder
	hasPID := false
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		if c != '%' {
			if strings.IndexByte(`*?[\`, c) >= 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
			continue
		}
		if i++; i == len(pattern) {
			break
		}
		switch pattern[i] {
		case '%':
			b.WriteByte('%')
		case 'p':
			hasPID = true
			b.WriteString(strconv.Itoa(pid))
		case 's':
			b.WriteString(strconv.Itoa(int(sig)))
		default:
			b.WriteByte('*')
		}
	}
	if usesPID && !hasPID {
		b.WriteString("." + strconv.Itoa(pid))
	}
	return b.String(), fmt.Sprintf("core dumped by the pattern %q, but not found", pattern)
}
