package proctree

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

// Signal sends sig to exactly this process: a pidfd pins the process that has the pid now, and a second read of /proc
// checks that it is the process of the scan. Without pidfds (an old kernel, a container's filter, no free descriptor)
// the second read must suffice.
func (p Process) Signal(sig syscall.Signal) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
	}
	if now, ok := readChild(p.PID, ProcIsOurs()); !ok || now.Start != p.Start {
		return
	}
	if err == nil {
		if err = unix.PidfdSendSignal(fd, sig, nil, 0); err == nil || errors.Is(err, unix.ESRCH) {
			return
		}
	}
	_ = syscall.Kill(p.PID, sig)
}

// Job lists the processes of the job, including zombies: the descendants of this process that are not in its session.
func Job() ([]Process, error) {
	session, err := unix.Getsid(0)
	if err != nil {
		session = -1
	}
	all, err := All()
	if err != nil {
		return nil, err
	}
	return Descendants(os.Getpid(), all, func(p Process) bool { return p.Session != session }), nil
}

// All reads every process of /proc. It fails if /proc does not show this pid namespace.
func All() ([]Process, error) {
	if !ProcIsOurs() {
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
	all := make([]Process, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := Read(pid); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// Read reads the process pid from /proc.
func Read(pid int) (Process, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, false
	}
	return parseStat(data)
}

// OwnThreads returns the number of threads of this process, or 0 if it is not known.
func OwnThreads() int {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	p, _ := parseStat(stat)
	return p.Threads
}

// parseStat parses /proc/PID/stat (proc(5)): pid (comm) state ppid pgrp session … starttime, the 22nd field. comm may
// hold any character, including parentheses and blanks.
func parseStat(data []byte) (Process, bool) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || end < open {
		return Process{}, false
	}
	f := strings.Fields(string(data[end+1:]))
	if len(f) < 20 {
		return Process{}, false
	}
	pid, err1 := strconv.Atoi(string(bytes.TrimSpace(data[:open])))
	ppid, err2 := strconv.Atoi(f[1])
	session, err3 := strconv.Atoi(f[3])
	threads, err4 := strconv.Atoi(f[17])
	if errors.Join(err1, err2, err3, err4) != nil {
		return Process{}, false
	}
	return Process{
		PID: pid, PPID: ppid, Session: session, State: f[0][0], Threads: threads, Start: f[19],
		Comm: string(data[open+1 : end]),
	}, true
}

// childPIDs lists the children of this process for which wanted returns true, including zombies.
func childPIDs(wanted func(pid int) bool) ([]int, error) {
	if !ProcIsOurs() {
		return probeChildPIDs(wanted), nil
	}
	pids, err := listedChildPIDs()
	return slices.DeleteFunc(pids, func(pid int) bool { return !wanted(pid) }), err
}

// listedChildPIDs lists the children of this process from /proc. The kernel has one list for each thread. Without
// CONFIG_PROC_CHILDREN there are no lists, and all of /proc is read.
func listedChildPIDs() ([]int, error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, fmt.Errorf("look for children: %w", err)
	}
	var pids []int
	buffer := bytes.NewBuffer(make([]byte, 0, 64<<10))
	for _, t := range threads {
		data, err := readWhole("/proc/self/task/"+t.Name()+"/children", buffer)
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

// readWhole reads a file of /proc in one system call if possible, because entries may move between two. What it returns
// is valid until buffer is used again.
func readWhole(path string, buffer *bytes.Buffer) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	buffer.Reset()
	_, err = buffer.ReadFrom(f)
	return buffer.Bytes(), err
}

func scanChildPIDs() ([]int, error) {
	all, err := All()
	var pids []int
	for _, p := range all {
		if p.PPID == os.Getpid() {
			pids = append(pids, p.PID)
		}
	}
	return pids, err
}
