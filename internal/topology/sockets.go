package topology

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const (
	listening = "LISTEN"
	timeWait  = "TIME_WAIT"
)

// socketState returns the name of a state of include/net/tcp_states.h. A socket in any state can make bind fail: a
// client's connection blocks its local port too, unless both sockets allow address reuse.
func socketState(code uint64) string {
	names := []string{
		1: "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", timeWait,
		"CLOSE", "CLOSE_WAIT", "LAST_ACK", listening, "CLOSING",
	}
	if code == 0 || code >= uint64(len(names)) {
		return fmt.Sprintf("%#x", code)
	}
	return names[code]
}

// socket is one line of /proc/net/tcp or tcp6.
type socket struct {
	local netip.AddrPort
	state string
	uid   int
	inode uint64 // 0 if no process has it: TIME_WAIT, or a connection that is not yet accepted
}

// weight orders sockets by how likely they block a bind, the most likely first.
func (s socket) weight() int {
	switch {
	case s.state == listening:
		return 0
	case s.inode != 0:
		return 1
	}
	return 2
}

// parseSockets reads the text of /proc/net/tcp or tcp6. It skips lines that it cannot read, such as the heading.
func parseSockets(text string) []socket {
	var sockets []socket
	for line := range strings.Lines(text) {
		// sl local remote st tx:rx tr:when retransmits uid timeout inode ...
		fields := strings.Fields(line)
		if len(fields) < 10 {
			continue
		}
		local, err := parseHexAddr(fields[1])
		state, err1 := strconv.ParseUint(fields[3], 16, 8)
		uid, err2 := strconv.ParseUint(fields[7], 10, 32)
		inode, err3 := strconv.ParseUint(fields[9], 10, 64)
		if errors.Join(err, err1, err2, err3) != nil {
			continue
		}
		sockets = append(sockets, socket{local: local, state: socketState(state), uid: int(uid), inode: inode})
	}
	return sockets
}

// parseHexAddr reads "0100007F:733C". The kernel prints an address as one or four 32-bit words. Each word is the
// network-order bytes as a number in the byte order of this machine. The port is a plain number.
func parseHexAddr(text string) (netip.AddrPort, error) {
	hexAddr, hexPort, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(hexAddr)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := strconv.ParseUint(hexPort, 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for word := range slices.Chunk(raw, 4) {
		if len(word) == 4 {
			binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
		}
	}
	addr, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("address of %d bytes", len(raw))
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), nil
}

// conflict reports whether a socket that is bound to held can block the port of wanted. It assumes that "::" also
// covers the IPv4 addresses, which is the default; the table does not show sockets with the option IPV6_V6ONLY.
func conflict(wanted, held netip.Addr) bool {
	wanted, held = wanted.Unmap(), held.Unmap()
	switch {
	case !wanted.IsValid() || wanted == held:
		return true
	case wanted.Is4() == held.Is4():
		return wanted.IsUnspecified() || held.IsUnspecified()
	}
	return wanted == netip.IPv6Unspecified() || held == netip.IPv6Unspecified()
}

// socketHolder returns the lowest pid that has the socket open, or 0 if there is no visible one.
func socketHolder(proc fs.FS, inode uint64) int {
	if inode == 0 {
		return 0
	}
	entries, err := fs.ReadDir(proc, ".")
	if err != nil {
		return 0
	}
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	target := fmt.Sprintf("socket:[%d]", inode)
	for _, pid := range pids {
		if hasOpen(proc, pid, target) {
			return pid
		}
	}
	return 0
}

// hasOpen reports whether one of the process's file descriptors is a link to target. It returns false for processes
// whose descriptors cannot be listed: those of another user, and those that have just ended.
func hasOpen(proc fs.FS, pid int, target string) bool {
	dir := path.Join(strconv.Itoa(pid), "fd")
	fds, err := fs.ReadDir(proc, dir)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(fds, func(fd fs.DirEntry) bool {
		link, err := fs.ReadLink(proc, path.Join(dir, fd.Name()))
		return err == nil && link == target
	})
}

// maxCommand limits a command line in an error message, in characters.
const maxCommand = 120

// command returns the process's command line as one printable line, or the name of its executable if the process has
// cleared its command line.
func command(proc fs.FS, pid int) string {
	if pid == 0 {
		return ""
	}
	dir := strconv.Itoa(pid)
	line := strings.TrimSpace(strings.ReplaceAll(readString(proc, path.Join(dir, "cmdline")), "\x00", " "))
	if line == "" {
		line = strings.TrimSpace(readString(proc, path.Join(dir, "comm")))
	}
	runes := []rune(strings.Map(printable, line))
	if len(runes) > maxCommand {
		return string(runes[:maxCommand]) + "…"
	}
	return string(runes)
}

// printable replaces characters of another process's command line that a terminal would act on.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return '?'
}
