package elastic

import (
	"fmt"
	"net"
	"os"
	"runtime"
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
	runtime.LockOSThread() // the thread ends with this goroutine, and the network with the thread
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		testenv.Missing(t, "needs a network namespace: %v", err)
	}
	raiseLoopback(t)
	const free, taken = 40000, 40001 // the kernel prefers odd ports
	portRange := fmt.Appendf(nil, "%d %d", free, taken)
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", portRange, 0o644); err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("tcp", fmt.Sprint("127.0.0.2:", taken))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for range 20 {
		_, offer, err := WorkerStores{Addr: "127.0.0.1", WorkersHost: true}.open(t.Context(), rdzv.Member{}, nil, zerolog.Nop())
		if err != nil || offer.Port != free {
			t.Fatalf("the port is %d, %v; want %d", offer.Port, err, free)
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
