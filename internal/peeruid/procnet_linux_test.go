package peeruid

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestOneReadingForAll has a list that shows the sockets that exist when it is read. Calls that come during a reading
// share the next one, which shows them the sockets that are new since the first reading began.
func TestOneReadingForAll(t *testing.T) {
	const calls = 100
	at := func(i int) tuple {
		return tuple{netip.AddrPortFrom(example.local.Addr(), uint16(40000+i)), example.remote}
	}
	begun, goOn := make(chan struct{}), make(chan struct{})
	readings := 0
	p := &procNet{open: func(list string) (io.ReadCloser, error) {
		if list != "tcp" {
			return nil, fs.ErrNotExist
		}
		readings++
		lines, shown := []string{"heading"}, 1
		if readings > 1 {
			shown = 1 + calls
		}
		for i := range shown {
			lines = append(lines, fmt.Sprintf("0: 0100007F:%04X 0200007F:72D8 01 0:0 0:0 0 %d 0 77 1", 40000+i, 1000+i))
		}
		if readings == 1 {
			close(begun)
			<-goOn
		}
		return io.NopCloser(strings.NewReader(strings.Join(lines, "\n"))), nil
	}}
	var all sync.WaitGroup
	look := func(i int) {
		all.Go(func() {
			if found, err := p.look(at(i)); err != nil || found.user != uint32(1000+i) || found.inode != 77 {
				t.Errorf("connection %d: %+v, %v", i, found, err)
			}
		})
	}
	look(0)
	<-begun
	for i := range calls {
		look(1 + i)
	}
	testenv.Await(t, "all calls to wait", 10*time.Second, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.next != nil && len(p.next.found) == calls
	})
	close(goOn)
	all.Wait()
	if readings != 2 {
		t.Errorf("%d readings, want 2", readings)
	}
	if _, err := p.look(at(calls + 1)); !errors.Is(err, errNoSocket) {
		t.Errorf("a socket that does not exist: %v", err)
	}
}

// BenchmarkCrowd asks about 64 connections at a time among thousands of sockets.
func BenchmarkCrowd(b *testing.B) {
	const sockets, crowd = 3000, 64
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	var accepted []net.Conn
	for range sockets {
		dialed, err := net.DialTCP("tcp", nil, ln.Addr().(*net.TCPAddr))
		if err != nil {
			b.Fatal(err)
		}
		_ = dialed.SetLinger(0)
		b.Cleanup(func() { _ = dialed.Close() })
		c, err := ln.Accept()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		accepted = append(accepted, c)
	}
	f := &Finder{look: (&procNet{open: openProcNet}).look, unmapped: -1}
	for b.Loop() {
		var all sync.WaitGroup
		for _, c := range accepted[:crowd] {
			all.Go(func() {
				if user, err := f.Owner(c); err != nil || user != os.Geteuid() {
					b.Error(user, err)
				}
			})
		}
		all.Wait()
	}
}
