package hosts

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestReinstall kills everything on a host, gives the host another name and address, and lets it report both to a
// server on the other host.
func TestReinstall(t *testing.T) {
	l := New(t, 2)
	server, h := l.Hosts[0], l.Hosts[1]
	tree := startProcessTree(t, h)
	h.Kill()
	_ = tree.Wait()
	if status := tree.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("the command ended with %v, want SIGKILL", tree.ProcessState)
	}
	before, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		t.Skipf("there is no file to lay another one over: %v", err)
	}
	h.Reinstall(
		"web-7",
		"10.75.0.77",
		map[string]string{"hosts": "10.75.0.77 web-7.web web-7\n", "resolv.conf": "nameserver 10.75.0.1\n"},
	)

	conn := server.ListenUDP(5300)
	defer conn.Close()
	own, err := os.Readlink("/proc/self/ns/net")
	if host, _ := os.Readlink("/proc/thread-self/ns/net"); err != nil || host != own {
		t.Errorf("the test was in %s and is in %s (%v)", own, host, err)
	}
	got := output(
		t,
		h,
		"hostname; echo $HOSTNAME; cat /etc/hosts /etc/resolv.conf; exec bash -c 'echo hello >/dev/udp/10.75.0.1/5300'",
	)
	if diff := cmp.Diff("web-7\nweb-7\n10.75.0.77 web-7.web web-7\nnameserver 10.75.0.1\n", got); diff != "" {
		t.Errorf("the host says (-want +got):\n%s", diff)
	}
	_ = conn.SetReadDeadline(time.Now().Add(removeBound))
	buf := make([]byte, 100)
	n, from, err := conn.ReadFromUDP(buf)
	if err != nil || string(buf[:n]) != "hello\n" || !from.IP.Equal(net.ParseIP(h.Addr)) || h.Name != "web-7" {
		t.Errorf("%s at %v wrote %q, %v", h.Name, from, buf[:n], err)
	}
	if after, err := os.ReadFile("/etc/resolv.conf"); err != nil || string(after) != string(before) ||
		strings.Contains(string(after), "10.75.0.1\n") {
		t.Errorf("the machine's resolv.conf, %v:\n%s", err, after)
	}
}
