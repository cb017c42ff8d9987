package pystack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// identity distinguishes a process from another one with the same pid, and from itself before an execve.
type identity struct {
	start uint64 // when the process was made, in clock ticks after boot
	// random are the bytes that the kernel draws at each execve, and randomAt is their address: AT_RANDOM of
	// getauxval(3). A forked process has the bytes of its parent, and another start.
	random   [16]byte
	randomAt uint64
}

// newIdentity reads the identity of a process.
func newIdentity(pid int, mem memory) (identity, error) {
	var id identity
	var err error
	if id.start, err = startTime(pid); err != nil {
		return id, err
	}
	auxv, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return id, &UnsupportedError{Reason: fmt.Sprintf("no permission to read process %d", pid), Err: plain(err)}
	case err != nil:
		return id, procError(err)
	}
	if len(auxv) == 0 { // the process has given up its memory
		return id, ErrExited
	}
	const random = 25 // AT_RANDOM
	for ; len(auxv) >= 16; auxv = auxv[16:] {
		if binary.LittleEndian.Uint64(auxv) == random {
			id.randomAt = binary.LittleEndian.Uint64(auxv[8:])
			if err = mem.readAt(id.random[:], id.randomAt); err == nil || errors.Is(err, ErrExited) || isUnsupported(err) {
				return id, err
			}
			return id, ErrReplaced
		}
	}
	return id, ErrReplaced // execve has not yet filled the vector
}

// check returns ErrExited or ErrReplaced if the process is no longer the one that has this identity.
func (id *identity) check(pid int, mem memory) error {
	var random [16]byte
	err := mem.readAt(random[:], id.randomAt)
	if start, serr := startTime(pid); serr != nil {
		return serr
	} else if start != id.start || errors.Is(err, ErrExited) {
		return ErrExited
	}
	if isUnsupported(err) {
		return err
	}
	if err != nil || !bytes.Equal(random[:], id.random[:]) {
		return ErrReplaced
	}
	return nil
}

// startTime returns when a process was made. For a process that has ended it returns ErrExited, even for a zombie.
func startTime(pid int) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, procError(err)
	}
	// The name before the last parenthesis can have spaces and parentheses. Fields are those of proc_pid_stat(5).
	const state, flags, start = 3, 9, 22
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) <= start-state {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	if s := fields[0]; s == "Z" || s == "X" {
		return 0, ErrExited
	}
	const kernelThread = 0x00200000 // PF_KTHREAD of the kernel's include/linux/sched.h
	if f, err := strconv.ParseUint(fields[flags-state], 10, 32); err == nil && f&kernelThread != 0 {
		return 0, unsupported("it is a thread of the kernel")
	}
	return strconv.ParseUint(fields[start-state], 10, 64)
}

// procError returns ErrExited for an error of /proc that means it, and any other error as it is.
func procError(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return ErrExited
	}
	return err
}

// plain returns the system's error without the path of a file.
func plain(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}
