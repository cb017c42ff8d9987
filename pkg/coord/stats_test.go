package coord

import (
	"sync"
	"testing"
)

// TestTraffic counts the messages of clients and store. It also shows that a client does not reconnect after Close.
func TestTraffic(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	const clients = 50
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			c, err := Dial(t.Context(), DialOptions{Addr: addr})
			if err != nil {
				t.Error(err)
				return
			}
			put(t, c, Op{Key: "key/" + string(c.Session()), Value: make([]byte, 100), Owned: true})
			closeStore(t, c)
		})
	}
	all.Wait()
	stats := s.Stats()
	// hello, join, commit, end; challenge, welcome, two replies
	if stats.Received.Messages != 4*clients || stats.Sent.Messages != 4*clients || stats.Accepted != clients {
		t.Errorf("%d connections, %d messages received and %d sent; want %d and four of each a client",
			stats.Accepted, stats.Received.Messages, stats.Sent.Messages, clients)
	}
	if got := stats.Received.Bytes / clients; got < 150 || got > 400 {
		t.Errorf("%d bytes received of each", got)
	}
	if got := stats.Sent.Bytes / clients; got < 100 || got > 300 {
		t.Errorf("%d bytes sent to each", got)
	}
	since := stats.Sent.Since(Traffic{Messages: 1, Bytes: 2})
	if since.Messages != stats.Sent.Messages-1 || since.Bytes != stats.Sent.Bytes-2 {
		t.Errorf("since: %+v of %+v", since, stats.Sent)
	}
}

// TestRefusalIsCounted counts a refusal that follows the preamble.
func TestRefusalIsCounted(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	nc := connect(t, addr)
	if _, err := nc.Write([]byte(magic + "\x00\x63")); err != nil {
		t.Fatal(err)
	}
	for b, err := make([]byte, 512), error(nil); err == nil; {
		_, err = nc.Read(b) // until the store closes the connection
	}
	if stats := s.Stats(); stats.Refused != 1 || stats.Sent.Messages == 0 {
		t.Errorf("%+v", stats)
	}
}
