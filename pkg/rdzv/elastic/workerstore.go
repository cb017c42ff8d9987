package elastic

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// WorkerStores say where this node's worker stores listen and how they are offered.
type WorkerStores struct {
	// Addr is the one address to announce and to listen on; empty listens on all and announces Offers.
	Addr string
	// Ports are those that may be taken.
	Ports Ports
	// WorkersHost leaves the hosting to the worker of rank 0 (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1).
	WorkersHost bool
	// Offers are the addresses to announce, in the order of preference, where Addr is empty.
	Offers func() []string
	// Fixed announces Addr as it is, without a check that it leads to this store: it is where the user said.
	Fixed bool
	// Shared says that the store is behind the front of the node of rank 0, and nowhere else.
	Shared bool
}

// workerStore is one round's TCPStore server, or what stands for it.
type workerStore struct {
	*rdzv.WorkerStore // nil where a front or a worker serves
	probes            sync.WaitGroup
}

// nonceSize is the length of an offer's nonce before it is written in hexadecimal digits.
const nonceSize = 16

// open makes the store that this node would have as rank 0 of the next round: empty, and listening.
func (w WorkerStores) open(ctx context.Context, self rdzv.Member, front *rdzv.WorkerStore, log zerolog.Logger) (*workerStore, Offer, error) {
	addr, ports := cmp.Or(self.MasterAddr, w.Addr), w.Ports
	if self.MasterPort != 0 {
		ports = Ports{self.MasterPort, self.MasterPort}
	}
	offer := Offer{Port: ports.Low, WorkersHost: w.WorkersHost}
	if addr != "" {
		offer.Addrs = []string{addr}
	} else {
		offer.Addrs = w.Offers()
	}
	switch {
	case w.Shared && front == nil: // the node of rank 0 has it
		return nil, Offer{}, nil
	case w.Shared:
		return nil, offer, front.Reset()
	}
	if w.WorkersHost && ports.Low != 0 {
		return nil, offer, nil
	}
	ln, err := ListenWorkerStore(ctx, ports, addr)
	if err != nil {
		return nil, Offer{}, err
	}
	offer.Port = ln.Addr().(*net.TCPAddr).Port
	if w.WorkersHost { // an agent cannot hold the port for a worker
		return nil, offer, ln.Close()
	}
	s := &workerStore{}
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // never fails
	if !w.Fixed {
		offer.Nonce = hex.EncodeToString(nonce)
	}
	s.WorkerStore = rdzv.ServeWorkerStore(ln, tcpstore.ServerOptions{Logger: log, Agents: func(c net.Conn) {
		s.probes.Go(func() { answerProbe(c, nonce) })
	}})
	return s, offer, nil
}

// close ends every connection and waits for the server's goroutines.
func (s *workerStore) close() error {
	if s == nil || s.WorkerStore == nil {
		return nil
	}
	err := s.Close()
	s.probes.Wait()
	return err
}

// An agent that wants to know whether an address leads to a worker store sends probeByte and the nonce of the offer, and gets the nonce's
// complement, which no other server can know.
const (
	probeByte    = 0x8e
	probeTimeout = 3 * time.Second
)

func answerProbe(c net.Conn, nonce []byte) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(probeTimeout))
	question := make([]byte, 1+len(nonce))
	if _, err := io.ReadFull(c, question); err != nil || question[0] != probeByte || !bytes.Equal(question[1:], nonce) {
		return
	}
	_, _ = c.Write(complement(nonce))
}

func complement(b []byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[i] = ^b[i]
	}
	return out
}

// reach returns the first of an offer's addresses, in their order, at which its worker store answers. All are tried at once. Its error says what
// happened at each.
func reach(ctx context.Context, o Offer) (string, error) {
	nonce, err := hex.DecodeString(o.Nonce)
	if err != nil {
		return "", fmt.Errorf("%w: nonce of the worker store: %w", rdzv.ErrState, err)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	results := make([]chan error, len(o.Addrs))
	for i, addr := range o.Addrs {
		results[i] = make(chan error, 1)
		go func() { results[i] <- probe(ctx, net.JoinHostPort(addr, strconv.Itoa(o.Port)), nonce) }()
	}
	var tried []string
	found := ""
	for i, addr := range o.Addrs {
		err := <-results[i]
		if err == nil && found == "" {
			found = addr
			cancel() // the rest need not go on, but are waited for
		}
		if err != nil && found == "" {
			tried = append(tried, err.Error())
		}
	}
	if found == "" {
		return "", fmt.Errorf("no address of it can be reached: %s", strings.Join(tried, "; "))
	}
	return found, nil
}

// probe asks whether the worker store with the nonce is at addr.
func probe(ctx context.Context, addr string, nonce []byte) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	answer := make([]byte, len(nonce))
	if _, err := c.Write(append([]byte{probeByte}, nonce...)); err != nil {
		return err
	}
	if n, err := io.ReadFull(c, answer); err != nil && n == 0 {
		return fmt.Errorf("%s is connected, but does not answer: %w", addr, err)
	} else if err != nil || !bytes.Equal(answer, complement(nonce)) {
		return fmt.Errorf("%s is not the worker store of this round", addr)
	}
	return nil
}

// addrOf is the address of a socket, without port and zone; invalid where it has none.
func addrOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}
