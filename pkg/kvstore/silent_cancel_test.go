package kvstore

import (
	"net"
	"testing"
)

// A torch 1.13 client that goes on without the answer to its wait does not get it
// before the answer to its next request, even where the wait was released in between.
func TestSilentCancelCrossesRelease(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	defer here.Close()
	c := newConn(NewServer(ServerOptions{}), here)
	feed := func(b []byte) {
		t.Helper()
		c.filled += copy(c.buf[c.filled:], b)
		if err := c.answerAll(); err != nil {
			t.Fatal(err)
		}
	}
	feed(encode(FirstGeneration, opAdd, "init", 1))
	feed(encode(FirstGeneration, opWait, 1, "key"))
	c.out = nil

	// The release and the next request come before the connection looks again.
	c.srv.storeMu.Lock()
	c.srv.store.set("key", []byte("value"))
	c.srv.storeMu.Unlock()
	if !c.released.Load() {
		t.Fatal("the wait was not released")
	}
	feed(encode(FirstGeneration, opAdd, "n", 7))
	if want := appendInt(nil, 7); string(c.out) != string(want) {
		t.Errorf("answers % x, want % x", c.out, want)
	}
}
