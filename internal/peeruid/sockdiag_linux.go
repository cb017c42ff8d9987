package peeruid

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// The messages of linux/inet_diag.h, without their netlink headers. Both contain the same description of a socket.
//
//	inet_diag_req_v2                    inet_diag_msg
//	 0  family, protocol, ext, pad       0  family, state, timer, retransmissions
//	 4  states (for lists)               4  socket
//	 8  socket                          52  expires, receive queue, send queue
//	                                    64  user, inode
//
//	socket (48 bytes): ports of source and destination in network order, 2 bytes each; their addresses, 16 bytes each;
//	interface; cookie, 8 bytes
const (
	requestSize = 56
	answerSize  = 72
	socketAt    = 8 // in the request
	foundAt     = 4 // in the answer
	stateAt     = 1
	userAt      = 64
	inodeAt     = 68
)

// loopback is the index of the loopback interface in every network namespace. Connections within a machine arrive
// there, whatever their addresses.
const loopback = 1

// sockDiag finds a socket by asking the kernel for it alone.
func sockDiag(t tuple) (socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return socket{}, os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := unix.Sendto(fd, diagRequest(t, scope(t.remote.Addr())), 0, kernel); err != nil {
		return socket{}, os.NewSyscallError("sendto", err)
	}
	// The kernel answers within sendto, so nothing has to be waited for.
	answer := make([]byte, 1024)
	n, from, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return socket{}, os.NewSyscallError("recvfrom", err)
	}
	if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
		return socket{}, errors.New("the answer is not the kernel's")
	}
	return parseDiag(answer[:n], t)
}

// scope returns the index of the interface at which a connection with addr arrives.
func scope(addr netip.Addr) uint32 {
	if addr.Zone() == "" {
		return loopback
	}
	zone, err := net.InterfaceByName(addr.Zone())
	if err != nil {
		return loopback
	}
	return uint32(zone.Index)
}

// diagRequest encodes a request for the socket t, as a packet that arrives at the interface with this index would find
// it.
func diagRequest(t tuple, iface uint32) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN+requestSize)
	binary.NativeEndian.PutUint32(b[0:], uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	request := b[unix.NLMSG_HDRLEN:]
	request[0], request[1] = family(t.local.Addr()), unix.IPPROTO_TCP
	s := request[socketAt:]
	binary.BigEndian.PutUint16(s[0:], t.local.Port())
	binary.BigEndian.PutUint16(s[2:], t.remote.Port())
	copy(s[4:20], t.local.Addr().AsSlice())
	copy(s[20:36], t.remote.Addr().AsSlice())
	binary.NativeEndian.PutUint32(s[36:], iface)
	binary.NativeEndian.PutUint64(s[40:], ^uint64(0)) // no cookie
	return b
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// parseDiag decodes the answer about t. If no connection has these addresses but a socket listens at the port, the
// kernel answers with that socket, which is not t.
func parseDiag(b []byte, t tuple) (socket, error) {
	if len(b) < unix.NLMSG_HDRLEN+4 {
		return socket{}, fmt.Errorf("an answer of %d bytes", len(b))
	}
	body := b[unix.NLMSG_HDRLEN:]
	switch kind := binary.NativeEndian.Uint16(b[4:]); {
	case kind == unix.NLMSG_ERROR:
		errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		if errno == unix.ENOENT {
			return socket{}, errNoSocket
		}
		return socket{}, os.NewSyscallError("sock_diag", errno)
	case kind != unix.SOCK_DIAG_BY_FAMILY || len(body) < answerSize:
		return socket{}, fmt.Errorf("an answer of type %d with %d bytes", kind, len(b))
	}
	if found := diagTuple(body); found.local != plain(t.local) || found.remote != plain(t.remote) {
		return socket{}, errNoSocket
	}
	return socket{
		state: body[stateAt],
		user:  binary.NativeEndian.Uint32(body[userAt:]),
		inode: uint64(binary.NativeEndian.Uint32(body[inodeAt:])),
	}, nil
}

// diagTuple returns the addresses and ports of an answer. A socket for IPv6 has IPv4 addresses in IPv6 form.
func diagTuple(body []byte) tuple {
	s := body[foundAt:]
	address := func(b []byte) netip.Addr {
		if body[0] == unix.AF_INET {
			return netip.AddrFrom4([4]byte(b[:4]))
		}
		return netip.AddrFrom16([16]byte(b[:16])).Unmap()
	}
	return tuple{
		local:  netip.AddrPortFrom(address(s[4:]), binary.BigEndian.Uint16(s[0:])),
		remote: netip.AddrPortFrom(address(s[20:]), binary.BigEndian.Uint16(s[2:])),
	}
}

// plain returns a without its zone.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().WithZone(""), a.Port())
}
