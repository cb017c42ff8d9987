package peeruid

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
)

// procNet finds sockets in the kernel's lists of all TCP sockets. Reading them takes milliseconds where there are
// thousands of sockets. So one reading serves all calls that wait for it, and it begins after each of these calls.
type procNet struct {
	open func(list string) (io.ReadCloser, error)

	mu   sync.Mutex // guards next
	next *reading   // has not begun; nil if nobody waits

	turn sync.Mutex // held during a reading
}

// reading is one reading of the lists. procNet.mu guards found until the reading begins, and procNet.turn guards it
// from then on.
type reading struct {
	found   map[tuple]socket // the sockets that are looked for; the zero socket until one is found
	missing int
	done    bool
	err     error
}

// openProcNet opens a list of this thread's network namespace.
func openProcNet(list string) (io.ReadCloser, error) { return os.Open("/proc/thread-self/net/" + list) }

// look implements lookup.
func (p *procNet) look(t tuple) (socket, error) {
	t = tuple{local: plain(t.local), remote: plain(t.remote)}
	p.mu.Lock()
	if p.next == nil {
		p.next = &reading{found: map[tuple]socket{}}
	}
	r := p.next
	r.found[t] = socket{}
	p.mu.Unlock()

	p.turn.Lock()
	defer p.turn.Unlock()
	if !r.done {
		p.mu.Lock()
		p.next = nil // calls that come from now on need a later list
		p.mu.Unlock()
		r.missing = len(r.found)
		r.err, r.done = r.read(p.open), true
	}
	if r.err != nil {
		return socket{}, r.err
	}
	if found := r.found[t]; found != (socket{}) {
		return found, nil
	}
	return socket{}, errNoSocket
}

// read reads the lists until every socket is found. An IPv6 socket with IPv4 addresses is in the IPv6 list.
func (r *reading) read(open func(string) (io.ReadCloser, error)) error {
	for _, list := range []string{"tcp", "tcp6"} {
		file, err := open(list)
		if errors.Is(err, fs.ErrNotExist) && list == "tcp6" { // a kernel without IPv6
			continue
		}
		if err != nil {
			return err
		}
		err = r.readList(file)
		_ = file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// readList finds sockets in a list in the format of proc_pid_net(5).
func (r *reading) readList(list io.Reader) error {
	lines := bufio.NewScanner(list)
	lines.Scan() // the heading
	for r.missing > 0 && lines.Scan() {
		// sl, local address, remote address, state, queues, timer, retransmissions, user, timeout, inode
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 {
			continue
		}
		local, err1 := procAddr(fields[1])
		remote, err2 := procAddr(fields[2])
		at := tuple{local: local, remote: remote}
		if before, wanted := r.found[at]; err1 != nil || err2 != nil || !wanted || before != (socket{}) {
			continue
		}
		state, err1 := strconv.ParseUint(fields[3], 16, 8)
		user, err2 := strconv.ParseUint(fields[7], 10, 32)
		inode, err3 := strconv.ParseUint(fields[9], 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		r.found[at] = socket{state: byte(state), user: uint32(user), inode: inode}
		r.missing--
	}
	return lines.Err()
}

// procAddr parses ADDRESS:PORT. The address is hexadecimal, in words of 4 bytes in the machine's order.
func procAddr(s string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	if err != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, fmt.Errorf("address %q", s)
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	n, err := strconv.ParseUint(port, 16, 16)
	addr, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), err
}
