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

// Core says where the memory of a process is that a signal has ended, and that the kernel says it has dumped. dir is where the process
// ran, since when it did. root is the file system of the machine.
func Core(root fs.FS, pid int, sig syscall.Signal, dir string, since time.Time) string {
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

// coreGlob makes of core_pattern(5) a pattern for file names, with a star for what is not known of the process any more; it is empty
// where no file is written. text says what is known without having looked.
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
	return b.String(), fmt.Sprintf("core dumped by the pattern %q, and not found", pattern)
}
