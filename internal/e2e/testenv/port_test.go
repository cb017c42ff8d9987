package testenv

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
)

// TestFreePort is not parallel: a process that another test is just starting holds each socket of this one for a
// moment.
func TestFreePort(t *testing.T) {
	port := FreePort(t)
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("before anybody listens: %v, %v", c, err)
	}
	for _, host := range []string{"127.0.0.1", "127.0.0.1", "0.0.0.0", ""} {
		ln, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port))
		if err != nil {
			t.Errorf("the test cannot listen at %q: %v", host, err)
			continue
		}
		_ = ln.Close()
	}
	if again := FreePort(t); again == port {
		t.Errorf("port %d twice", port)
	}
}
