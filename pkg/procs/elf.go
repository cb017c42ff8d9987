package procs

import (
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"
)

// The standard library's debug/elf is not used: it makes the binary larger, for three numbers of a file's head.

// elfMachines are the names of machines, as uname -m, by their number in the head of an ELF file.
var elfMachines = map[uint16]string{
	3: "i386", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64",
}

// elfOrder returns the byte order of an ELF file; nil if head is not that of one.
func elfOrder(head string) binary.ByteOrder {
	if len(head) < 64 || !strings.HasPrefix(head, "\x7fELF") {
		return nil
	}
	if head[5] == 2 {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// elfMachine returns the machine for which a program was built, as uname -m; empty if unknown.
func elfMachine(head string) string {
	order := elfOrder(head)
	if order == nil {
		return ""
	}
	return elfMachines[order.Uint16([]byte(head[18:20]))]
}

// elfLoader returns the path of the loader that a 64-bit program needs; empty for none.
func elfLoader(head string) string {
	const wide, interp = 2, 3 // ELFCLASS64, PT_INTERP
	order := elfOrder(head)
	if order == nil || head[4] != wide {
		return ""
	}
	b := []byte(head)
	start, size, count := order.Uint64(b[32:]), uint64(order.Uint16(b[54:])), uint64(order.Uint16(b[56:]))
	for i := range count {
		at := start + i*size
		if start > uint64(len(b)) || at+40 > uint64(len(b)) {
			return ""
		}
		if order.Uint32(b[at:]) != interp {
			continue
		}
		from, length := order.Uint64(b[at+8:]), order.Uint64(b[at+32:])
		if from > uint64(len(b)) || length > uint64(len(b))-from {
			return ""
		}
		return strings.TrimRight(string(b[from:from+length]), "\x00")
	}
	return ""
}

// machine returns the name of this machine's architecture, as uname -m; empty if unknown.
func machine() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Machine[:])
}
