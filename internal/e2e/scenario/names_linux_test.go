package scenario

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
)

// names is the name server of a cluster. It resolves the published names of pods and services, and denies all others.
type names struct {
	host *hosts.Host

	mu      sync.Mutex
	known   map[string][]netip.Addr
	unknown map[question]int // number of denied lookups of each name
}

// question is a host's lookup of the IPv4 address of a name.
type question struct {
	from netip.Addr
	name string
}

// serveNames runs a name server on a host until the test ends.
func serveNames(t *testing.T, on *hosts.Host) *names {
	t.Helper()
	n := &names{host: on, known: map[string][]netip.Addr{}, unknown: map[question]int{}}
	conn := on.ListenUDP(53)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := n.serve(conn); err != nil {
			t.Errorf("the name server: %v", err)
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-served
	})
	return n
}

// serve answers until the socket is closed or a read fails.
func (n *names) serve(conn *net.UDPConn) error {
	buf := make([]byte, 4096)
	for {
		size, from, err := conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		answer, err := n.answer(from.Addr().Unmap(), buf[:size])
		if err != nil {
			return fmt.Errorf("a question of %s: %w", from, err)
		}
		_, _ = conn.WriteToUDPAddrPort(answer, from) // the process that asked can have been killed
	}
}

// publish replaces the addresses of a name.
func (n *names) publish(name string, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[name] = nil
	for _, addr := range addrs {
		n.known[name] = append(n.known[name], netip.MustParseAddr(addr))
	}
}

// inVain returns how often the server replied to a host that a name does not exist.
func (n *names) inVain(h *hosts.Host, name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unknown[question{netip.MustParseAddr(h.Addr), name}]
}

// answer returns the response to a message with one question.
func (n *names) answer(from netip.Addr, message []byte) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(message)
	if err != nil {
		return nil, err
	}
	asked, err := parser.Question()
	if err != nil {
		return nil, err
	}
	response := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID:               header.ID,
			Response:         true,
			Authoritative:    true,
			RecursionDesired: header.RecursionDesired,
		},
		Questions: []dnsmessage.Question{asked},
	}
	addrs, ok := n.find(from, asked)
	if !ok {
		response.RCode = dnsmessage.RCodeNameError
	}
	if asked.Type == dnsmessage.TypeA {
		for _, addr := range addrs {
			response.Answers = append(response.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: asked.Name, Class: dnsmessage.ClassINET, TTL: 5},
				Body:   &dnsmessage.AResource{A: addr.As4()},
			})
		}
	}
	return response.Pack()
}

// find looks a name up and counts the lookup if the name does not exist.
func (n *names) find(from netip.Addr, asked dnsmessage.Question) ([]netip.Addr, bool) {
	name := asked.Name.String()
	name = name[:len(name)-1] // remove the final dot
	n.mu.Lock()
	defer n.mu.Unlock()
	addrs, ok := n.known[name]
	if !ok && asked.Type == dnsmessage.TypeA {
		n.unknown[question{from, name}]++
	}
	return slices.Clone(addrs), ok
}
