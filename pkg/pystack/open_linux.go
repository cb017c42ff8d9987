package pystack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// open finds Python in a process.
func open(pid int) (*Process, error) {
	if _, ok := tidOffsets[runtime.GOARCH]; !ok {
		return nil, unsupported("reading Python stacks is not supported on %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	mem := processMemory{pid}
	id, err := newIdentity(pid, mem)
	if err != nil {
		return nil, err
	}
	python, err := locate(pid, mem)
	var l *layout
	if err == nil {
		l, err = layoutFor(mem, python)
	}
	// The result counts only if the process has not called execve meanwhile.
	if changed := id.check(pid, mem); changed != nil {
		return nil, changed
	}
	if err != nil {
		return nil, err
	}
	if !hasInterpreter(mem, python) {
		return nil, ErrNoInterpreter
	}
	ids, err := newThreadIDs(pid, l)
	if err != nil {
		return nil, err
	}
	return &Process{
		pid: pid, identity: id, version: python.version, reader: newReader(mem, python.runtime, l), ids: ids,
	}, nil
}

// locate searches the mapped images of a process.
func locate(pid int, mem memory) (*found, error) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if errors.Is(err, fs.ErrPermission) {
		return nil, &UnsupportedError{Reason: fmt.Sprintf("no permission to read process %d", pid), Err: plain(err)}
	}
	if err != nil {
		return nil, procError(err)
	}
	defer maps.Close()
	all, err := parseMaps(maps)
	if err != nil {
		return nil, procError(err)
	}
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return nil, procError(err)
	}
	program = strings.TrimSuffix(program, deletedMark)
	return search(mem, all, program, func(m mapping) (file, error) { return openMapped(pid, m, program) })
}

// openMapped opens the file of a mapping. The file may be deleted, or lie in another mount namespace.
func openMapped(pid int, m mapping, program string) (file, error) {
	direct := fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, m.start, m.end) // needs CAP_CHECKPOINT_RESTORE
	if m.path == program {
		direct = fmt.Sprintf("/proc/%d/exe", pid)
	}
	if f, err := os.Open(direct); err == nil {
		return f, nil
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/root%s", pid, m.path))
	if err != nil {
		return nil, err
	}
	// Another file may have replaced the mapped one. The device numbers are not compared, because on some file systems
	// maps and stat(2) differ.
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Ino != m.inode {
		f.Close()
		return nil, fs.ErrNotExist
	}
	return f, nil
}
