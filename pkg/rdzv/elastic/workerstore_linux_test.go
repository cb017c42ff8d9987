package elastic

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// The port for a worker's own store is free at all addresses of the node, where the worker will listen. The test has a
// network of its own with two ports, one of which is taken at another address.
func TestWorkersPortIsFreeEverywhere(t *testing.T) {
	testenv.Root(t)
	testenv.OnThread(func() { testWorkersPort(t) })
}

// testWorkersPort leaves its thread in a network of its own.
func testWorkersPort(t *testing.T) {
	t.Helper()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Error("a network namespace:", err)
		return
	}
	raiseLoopback(t)
	const free, taken = 40000, 40001 // the kernel prefers odd ports
	portRange := fmt.Appendf(nil, "%d %d", free, taken)
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", portRange, 0o644); err != nil {
		t.Error(err)
		return
	}
	other, err := net.Listen("tcp", fmt.Sprint("127.0.0.2:", taken))
	if err != nil {
		t.Error(err)
		return
	}
	defer other.Close()
	for range 20 {
		_, offer, err := WorkerStores{Addr: "127.0.0.1", WorkersHost: true}.open(t.Context(), rdzv.Member{}, nil, zerolog.Nop())
		if err != nil || offer.Port != free {
			t.Errorf("the port is %d, %v; want %d", offer.Port, err, free)
			return
		}
	}
}

// raiseLoopback brings up the loopback interface of this thread's network.
func raiseLoopback(t *testing.T) {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		t.Fatal(err)
	}
}
