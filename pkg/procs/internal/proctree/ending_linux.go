package proctree

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// The kernel's flags of a process whose exit has begun (linux/sched.h).
const (
	flagExiting  = 0x4   // it is exiting
	flagDumpCore = 0x200 // it dumps its core
	flagSignaled = 0x400 // a signal has killed it
)

// IsEnding reports whether nothing can change how the child pid ends: it exits, dumps its core, or was sent SIGKILL,
// perhaps by the OOM killer. It may still take a while to free its memory.
func IsEnding(pid int) bool {
	if !ProcIsOurs() {
		return false
	}
	dir := "/proc/" + strconv.Itoa(pid)
	status, err1 := os.ReadFile(dir + "/status")
	stat, err2 := os.ReadFile(dir + "/stat") // read last: SIGKILL stays pending until the flags are set
	return err1 == nil && err2 == nil && endingBy(stat, status)
}

// endingBy decides IsEnding from /proc/PID/stat and /proc/PID/status (proc(5)).
func endingBy(stat, status []byte) bool {
	p, ok := parseStat(stat)
	if !ok || p.Dead() {
		return ok
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // parseStat has checked their number
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	ending := uint64(flagExiting | flagDumpCore | flagSignaled)
	if p.State == 'Z' { // its first thread has ended, maybe no other
		ending &^= flagExiting
	}
	if err == nil && flags&ending != 0 {
		return true
	}
	return hasSignal(status, "SigPnd:", syscall.SIGKILL) || hasSignal(status, "ShdPnd:", syscall.SIGKILL)
}
