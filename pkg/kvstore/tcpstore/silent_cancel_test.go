package tcpstore

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A torch 1.13 client that goes on without the answer to its wait does not get it
// before the answer to its next request, even where the wait was released in between.
func TestSilentCancelCrossesRelease(t *testing.T) {
	l := stepLoop(t, ServerOptions{})
	c := l.connect(FirstGeneration)
	c.send(opAdd, "init", 1)
	c.expect(1)
	c.send(opWait, 1, "key")

	// The release and the next request come before the loop looks again.
	l.store.Set("key", []byte("value"))
	if len(l.released) != 1 {
		t.Fatal("the wait was not released")
	}
	if _, err := unix.Write(c.nc.(*steppedWire).fd, encode(FirstGeneration, opAdd, "n", 7)); err != nil {
		t.Fatal(err)
	}
	c.expect(7)
	c.ping()
}
