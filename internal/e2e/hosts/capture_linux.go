package hosts

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Capture records the packets on a host's cable, in both directions, as another machine on the network can see them.
type Capture struct {
	t      testing.TB
	socket *os.File
	done   chan struct{} // closed when the reader has ended

	mu    sync.Mutex
	flows map[Flow][]byte
}

// Flow is one direction of a TCP connection.
type Flow struct{ From, To netip.AddrPort }

// Capture begins to record. It needs AF_PACKET sockets, see packet(7).
func (h *Host) Capture() *Capture {
	h.lab.t.Helper()
	c := &Capture{t: h.lab.t, done: make(chan struct{}), flows: map[Flow][]byte{}}
	err := h.within(func() error {
		const everything = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00 // in network byte order
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, everything)
		if err != nil {
			return err
		}
		c.socket = os.NewFile(uintptr(fd), "capture")
		// Room for everything that a job sends while this process does not run.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return err
		}
		eth0, err := interfaceIndex("eth0")
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everything, Ifindex: eth0})
	})
	if err != nil {
		h.lab.t.Fatalf("capture on %s: %v", h.Name, err)
	}
	go c.read()
	h.lab.t.Cleanup(c.stop)
	return c
}

// interfaceIndex returns the index of an interface in this thread's namespace.
func interfaceIndex(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		return 0, fmt.Errorf("index of %s: %w", name, err)
	}
	return int(request.Uint32()), nil
}

// read records packets until the socket is closed.
func (c *Capture) read() {
	defer close(c.done)
	packet := make([]byte, 1<<18) // larger than any that the kernel merges
	for {
		n, err := c.socket.Read(packet)
		if err != nil {
			return
		}
		if flow, payload := parseTCP(packet[:n]); len(payload) > 0 {
			c.mu.Lock()
			c.flows[flow] = append(c.flows[flow], payload...)
			c.mu.Unlock()
		}
	}
}

// parseTCP returns the payload of a TCP segment in an IPv4 packet, or nothing.
func parseTCP(p []byte) (flow Flow, payload []byte) {
	if len(p) < 20 || p[0]>>4 != 4 || p[9] != unix.IPPROTO_TCP {
		return Flow{}, nil
	}
	header, size := int(p[0]&0xf)*4, int(binary.BigEndian.Uint16(p[2:]))
	if size == 0 || size > len(p) { // a merged packet has no size
		size = len(p)
	}
	from, to := netip.AddrFrom4([4]byte(p[12:])), netip.AddrFrom4([4]byte(p[16:]))
	if p = p[min(header, size):size]; len(p) < 20 {
		return Flow{}, nil
	}
	port := func(at int) uint16 { return binary.BigEndian.Uint16(p[at:]) }
	data := int(p[12]>>4) * 4
	return Flow{netip.AddrPortFrom(from, port(0)), netip.AddrPortFrom(to, port(2))}, p[min(data, len(p)):]
}

// stop ends the recording.
func (c *Capture) stop() {
	_ = c.socket.Close() // fails if it is closed
	<-c.done
}

// Flows ends the recording and returns the bytes of each flow, in the order of the packets. It fails the test if the
// kernel has dropped packets.
func (c *Capture) Flows() map[Flow][]byte {
	c.t.Helper()
	control, err := c.socket.SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	var stats *unix.TpacketStats
	var failed error
	err = control.Control(func(fd uintptr) {
		stats, failed = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	})
	if err != nil || failed != nil {
		c.t.Fatalf("statistics of the capture: %v, %v", err, failed)
	}
	if stats.Drops > 0 {
		c.t.Fatalf("the capture has lost %d of %d packets", stats.Drops, stats.Packets)
	}
	c.stop()
	return maps.Clone(c.flows)
}
