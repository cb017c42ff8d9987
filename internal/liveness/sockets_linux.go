package liveness

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// receivedTimeout bounds each wait for the kernel's list of sockets, in microseconds.
const receivedTimeout = 200_000

// received returns how many bytes each TCP socket of this network namespace has received so far, by its inode; nil if
// that is not known. /proc/PID/io does not count them.
func received() map[uint32]uint64 {
	all := map[uint32]uint64{}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if err := listSockets(family, all); err != nil {
			return nil
		}
	}
	return all
}

// The messages of linux/inet_diag.h, without their netlink headers.
const (
	diagRequestSize = 56 // family, protocol, extensions, padding, states, socket
	diagAnswerSize  = 72 // ... inode; attributes follow
	diagInodeAt     = 68
	diagInfo        = 2   // the attribute with the socket's tcp_info
	bytesReceivedAt = 128 // in tcp_info (linux/tcp.h)
)

// listSockets adds the TCP sockets of one family.
func listSockets(family byte, all map[uint32]uint64) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	timeout := &unix.Timeval{Usec: receivedTimeout}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, timeout); err != nil {
		return err
	}
	b := make([]byte, unix.NLMSG_HDRLEN+diagRequestSize)
	binary.NativeEndian.PutUint32(b[0:], uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	request := b[unix.NLMSG_HDRLEN:]
	request[0], request[1], request[2] = family, unix.IPPROTO_TCP, 1<<(diagInfo-1)
	binary.NativeEndian.PutUint32(request[4:], ^uint32(0)) // in all states
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 1<<16)
	for {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return err
		}
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			continue // it is not the kernel's
		}
		if done, err := addSockets(buf[:n], all); done || err != nil {
			return err
		}
	}
}

// addSockets adds the sockets of one answer. done says that it was the last one.
func addSockets(b []byte, all map[uint32]uint64) (done bool, err error) {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return false, fmt.Errorf("a netlink message of %d bytes in %d", size, len(b))
		}
		body := b[unix.NLMSG_HDRLEN:size]
		switch binary.NativeEndian.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			return false, errors.New("the kernel lists no sockets")
		case unix.SOCK_DIAG_BY_FAMILY:
			if len(body) >= diagAnswerSize {
				all[binary.NativeEndian.Uint32(body[diagInodeAt:])] = bytesReceived(body[diagAnswerSize:])
			}
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return false, nil
}

// bytesReceived finds the number in the attributes of a socket.
func bytesReceived(attributes []byte) uint64 {
	const head = 4 // length and type
	for len(attributes) >= head {
		size := int(binary.NativeEndian.Uint16(attributes))
		if size < head || size > len(attributes) {
			return 0
		}
		value := attributes[head:size]
		if binary.NativeEndian.Uint16(attributes[2:]) == diagInfo && len(value) >= bytesReceivedAt+8 {
			return binary.NativeEndian.Uint64(value[bytesReceivedAt:])
		}
		attributes = attributes[min(len(attributes), (size+3)&^3):]
	}
	return 0
}

// socketsOf returns the inodes of the sockets that processes have open.
func socketsOf(processes []process) (inodes []uint32) {
	for _, p := range processes {
		dir := fmt.Sprintf("/proc/%d/fd/", p.id.pid)
		files, _ := os.ReadDir(dir)
		for _, f := range files {
			target, _ := os.Readlink(dir + f.Name())
			text, ok := strings.CutPrefix(target, "socket:[")
			if inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 32); ok && err == nil {
				inodes = append(inodes, uint32(inode))
			}
		}
	}
	return inodes
}
