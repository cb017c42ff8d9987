package procs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// signal sends sig to exactly this process: the pidfd pins whatever holds the
// pid now, and a second look tells whether it is still the one that was seen.
// Where there are no pidfds (an old kernel, a container's filter, no descriptor left)
// the second look has to do.
func (p process) signal(sig syscall.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
	}
	if now, ok := readChild(p.pid, procIsOurs()); !ok || now.start != p.start {
		return
	}
	if err == nil {
		if err = unix.PidfdSendSignal(fd, sig, nil, 0); err == nil || errors.Is(err, unix.ESRCH) {
			return
		}
	}
	_ = syscall.Kill(p.pid, sig)
}

// jobProcesses lists the job's processes, zombies included: the descendants of
// this process that are not in its session.
func jobProcesses() ([]process, error) {
	session, err := unix.Getsid(0)
	if err != nil {
		session = -1
	}
	all, err := allProcesses()
	if err != nil {
		return nil, err
	}
	return descendants(os.Getpid(), all, func(p process) bool { return p.session != session }), nil
}

// allProcesses reads every process that /proc shows, where it is this namespace's.
func allProcesses() ([]process, error) {
	if !procIsOurs() {
		return nil, errForeignProc
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	all := make([]process, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

func readProcess(pid int) (process, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	return parseStat(data)
}

// parseStat reads /proc/PID/stat (proc(5)): pid (comm) state ppid pgrp session …
// starttime, the 22nd field. comm may hold anything, parentheses and blanks too.
func parseStat(data []byte) (process, bool) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || end < open {
		return process{}, false
	}
	f := strings.Fields(string(data[end+1:]))
	if len(f) < 20 {
		return process{}, false
	}
	pid, err1 := strconv.Atoi(string(bytes.TrimSpace(data[:open])))
	ppid, err2 := strconv.Atoi(f[1])
	session, err3 := strconv.Atoi(f[3])
	threads, err4 := strconv.Atoi(f[17])
	if errors.Join(err1, err2, err3, err4) != nil {
		return process{}, false
	}
	return process{
		pid: pid, ppid: ppid, session: session, state: f[0][0], threads: threads, start: f[19],
		comm: string(data[open+1 : end]),
	}, true
}

// childPIDs lists the children of this process that are wanted, zombies included. The kernel
// keeps them by thread; without CONFIG_PROC_CHILDREN all of /proc is read.
func childPIDs(wanted func(pid int) bool) ([]int, error) {
	if !procIsOurs() {
		return probeChildPIDs(wanted), nil
	}
	pids, err := listedChildPIDs()
	return slices.DeleteFunc(pids, func(pid int) bool { return !wanted(pid) }), err
}

// listedChildPIDs is childPIDs by /proc.
func listedChildPIDs() ([]int, error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, fmt.Errorf("look for children: %w", err)
	}
	var pids []int
	for _, t := range threads {
		data, err := readWhole("/proc/self/task/" + t.Name() + "/children")
		switch {
		case err == nil:
		case errors.Is(err, os.ErrNotExist) && t.Name() == strconv.Itoa(os.Getpid()):
			return scanChildPIDs()
		case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH): // else the thread has ended
			return nil, fmt.Errorf("look for children: %w", err)
		}
		for f := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// readWhole reads a file of /proc in one call where it can: between two, entries
// may move.
func readWhole(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data := bytes.NewBuffer(make([]byte, 0, 64<<10))
	_, err = data.ReadFrom(f)
	return data.Bytes(), err
}

func scanChildPIDs() ([]int, error) {
	all, err := allProcesses()
	var pids []int
	for _, p := range all {
		if p.ppid == os.Getpid() {
			pids = append(pids, p.pid)
		}
	}
	return pids, err
}
