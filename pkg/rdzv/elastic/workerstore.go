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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/plainerr"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// WorkerStores configures where this node's worker stores listen and which addresses it announces.
type WorkerStores struct {
	// Addr is the address to listen at and to announce. If it is empty, stores listen at all addresses and announce
	// Offers.
	Addr string
	// Ports are the ports that a store may use.
	Ports machine.Ports
	// WorkersHost makes the worker of rank 0 host the store (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1).
	WorkersHost bool
	// Offers returns the addresses to announce if Addr is empty, in the order of preference.
	Offers func() []string
	// Fixed makes other nodes use Addr without checking that this store answers there: the user has chosen it.
	Fixed bool
	// OneNode says that every client is on this machine: other machines are refused, as other users are.
	OneNode bool
	// Users may use the store if only this machine can reach it.
	Users *StoreUsers
	// Shared says that workers use the store that the node of rank 0 serves at the front (Access.Front).
	Shared bool
}

// workerStore is this node's worker store for one round.
type workerStore struct {
	*rdzv.WorkerStore // nil if a front or a worker serves the store
	probes            sync.WaitGroup
}

// freeEverywhere returns a port that is free at all addresses. A worker's TCPStore listens at all of them, so a port
// that is free only at the node's address may be taken (torch 2.15 torch/distributed/elastic/utils/distributed.py).
func freeEverywhere(ctx context.Context) (machine.Ports, error) {
	ln, err := machine.ListenWorkerStore(ctx, machine.Ports{}, "")
	if err != nil {
		return machine.Ports{}, err
	}
	port := ln.Addr().(*net.TCPAddr).Port
	return machine.Ports{Low: port, High: port}, ln.Close()
}

// nonceSize is the length of an offer's nonce in bytes, before hexadecimal encoding.
const nonceSize = 16

// open opens an empty store, which listens, for this node as rank 0 of the next round.
func (w WorkerStores) open(
	ctx context.Context, self rdzv.Member, front *rdzv.WorkerStore, log zerolog.Logger,
) (*workerStore, rounds.Offer, error) {
	addr, ports := cmp.Or(self.MasterAddr, w.Addr), w.Ports
	if self.MasterPort != 0 {
		ports = machine.Ports{Low: self.MasterPort, High: self.MasterPort}
	}
	offer := rounds.Offer{Port: ports.Low, WorkersHost: w.WorkersHost}
	if addr != "" {
		offer.Addrs = []string{addr}
	} else {
		offer.Addrs = w.Offers()
	}
	switch {
	case w.Shared && front == nil: // only the node of rank 0 serves the store
		return nil, rounds.Offer{}, nil
	case w.Shared:
		return nil, offer, front.Reset()
	}
	if w.WorkersHost && ports.Low != 0 {
		return nil, offer, nil
	}
	if w.WorkersHost {
		var err error
		if ports, err = freeEverywhere(ctx); err != nil {
			return nil, rounds.Offer{}, err
		}
	}
	ln, err := machine.ListenWorkerStore(ctx, ports, addr)
	if err != nil {
		return nil, rounds.Offer{}, err
	}
	offer.Port = ln.Addr().(*net.TCPAddr).Port
	if w.WorkersHost { // an agent cannot keep the port for a worker
		return nil, offer, ln.Close()
	}
	accept, err := w.Users.Admission(ln, w.OneNode)
	if err != nil {
		_ = ln.Close()
		return nil, rounds.Offer{}, err
	}
	s := &workerStore{}
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // never fails
	if !w.Fixed {
		offer.Nonce = hex.EncodeToString(nonce)
	}
	s.WorkerStore = rdzv.ServeWorkerStore(ln, tcpstore.ServerOptions{
		Logger: log, Accept: accept, Agents: func(c net.Conn) { s.probes.Go(func() { answerProbe(c, nonce) }) },
	})
	return s, offer, nil
}

// close closes every connection and waits for the server's goroutines.
func (s *workerStore) close() error {
	if s == nil || s.WorkerStore == nil {
		return nil
	}
	err := s.Close()
	s.probes.Wait()
	return err
}

// To find out whether an address leads to a worker store, an agent sends probeByte and the nonce of the offer. The
// store of that offer replies with the nonce's complement. No other server does: an echo server would return the nonce
// itself.
const (
	probeByte    = 0x8e
	probeTimeout = 3 * time.Second
)

// answerProbe answers the probe on c if its nonce is right, and closes c.
func answerProbe(c net.Conn, nonce []byte) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(probeTimeout))
	question := make([]byte, 1+len(nonce))
	if _, err := io.ReadFull(c, question); err != nil || question[0] != probeByte || !bytes.Equal(question[1:], nonce) {
		return
	}
	_, _ = c.Write(complement(nonce))
}

// complement returns b with every bit inverted.
func complement(b []byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[i] = ^b[i]
	}
	return out
}

// reach returns the first of an offer's addresses, in their order, at which its worker store answers. It tries all at
// once. The error says what happened at each.
func reach(ctx context.Context, o rounds.Offer) (string, error) {
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
			cancel() // the other probes end early, and reach waits for them
		}
		if err != nil && found == "" {
			tried = append(tried, err.Error())
		}
	}
	if found == "" {
		return "", fmt.Errorf("none of its addresses answers: %s", strings.Join(tried, "; "))
	}
	return found, nil
}

// probe returns nil if the worker store with the nonce is at addr.
func probe(ctx context.Context, addr string, nonce []byte) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("%s: %s", addr, plainerr.Text(err))
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	answer := make([]byte, len(nonce))
	if _, err := c.Write(append([]byte{probeByte}, nonce...)); err != nil {
		return err
	}
	if n, err := io.ReadFull(c, answer); err != nil && n == 0 {
		return fmt.Errorf("%s accepts the connection but does not answer: %s", addr, plainerr.Text(err))
	} else if err != nil || !bytes.Equal(answer, complement(nonce)) {
		return fmt.Errorf("%s is not the worker store of this round", addr)
	}
	return nil
}
