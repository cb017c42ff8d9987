package coord

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"time"
)

// Sighting is what a store tells of itself to who only looks.
type ProbeResult struct {
	// Version is elasticrun's; empty where the store does not say.
	Version string
	// RunID is the one run that the store serves; empty: it serves any.
	RunID string
	// Agents counts the sessions of the run that was asked about, or of all runs; an agent in the store's own process is not among them.
	Agents int
	// RoundTrip is how long the last question and its answer took.
	RoundTrip time.Duration
	// Offset is how far the store's clock is ahead of this machine's. It may be wrong by half of RoundTrip.
	Offset time.Duration
}

// Look finds out what is at the address of a store, and leaves no trace there: it opens no session. Its errors are those of Dial: who is
// refused here would be refused there. The option TTL does not count.
func Probe(ctx context.Context, opts DialOptions) (ProbeResult, error) {
	g := attempt{opts: &opts, detectTorchStore: true}
	var s ProbeResult
	nc, _, err := g.exchange(ctx, func(nc net.Conn, in *bufio.Reader) (err error) {
		if err = g.challenge(nc, in); err == nil {
			s, err = g.probe(nc, in)
		}
		return err
	})
	if err != nil {
		return ProbeResult{}, err
	}
	nc.Close()
	return s, nil
}

// look is what comes in place of join.
func (g *attempt) probe(nc net.Conn, in *bufio.Reader) (ProbeResult, error) {
	asked := time.Now()
	frame := probeRequest{g.proofs.proof(sideAgent, nil)}.append(nil)
	g.proofs.add(bodyOf(frame))
	if _, err := nc.Write(frame); err != nil {
		return ProbeResult{}, g.noAnswer(err)
	}
	body, err := g.readFrame(in, kindProbeReply)
	if err != nil {
		return ProbeResult{}, err
	}
	now := time.Now()
	a, err := decodeProbeReply(body)
	if err != nil {
		return ProbeResult{}, g.protocolError(err)
	}
	proof := a.proof
	a.proof = nil
	if !g.proofs.verifies(sideStore, bodyOf(a.append(nil)), proof) {
		return ProbeResult{}, g.refused(ReasonSecret, "the store does not know the shared secret: it is not to be trusted")
	}
	trip := now.Sub(asked)
	return ProbeResult{
		Version: printable(a.version), RunID: printable(a.runID), Agents: int(a.agents), RoundTrip: trip,
		Offset: time.Unix(0, a.time).Sub(asked.Add(trip / 2).Round(0)), // wall clocks on both sides
	}, nil
}

// Connect finds out whether something listens at an address, and says nothing to it. Its errors are those of Dial.
func Connect(ctx context.Context, opts DialOptions) error {
	nc, err := (&attempt{opts: &opts}).connect(ctx)
	if err != nil {
		return err
	}
	return nc.Close()
}

// torchPatience is how long a TCPStore may take to show itself.
const torchTimeout = 500 * time.Millisecond

// examine adds to the error of a peer that does not answer an agent whether it is a torch TCPStore: that ends the
// connection of an agent, and never speaks first. A store of agents answers a TCPStore's questions too, and may have begun
// since, behind a proxy for instance: it alone answers an agent that asks again.
func (g *attempt) detectTorch(ctx context.Context, err error) error {
	var obstacle *DialError
	if !g.detectTorchStore || !errors.As(err, &obstacle) || obstacle.Obstacle != ObstacleSilent && obstacle.Obstacle != ObstacleClosed {
		return err
	}
	for _, try := range []struct {
		ask    string
		answer []byte // what it begins with; nil: anything
		size   int
	}{
		// VALIDATE with its magic number, and PING, which gives its own number back.
		{ask: "\x00\xce\xf7\x85\x3c\x0d\x21\x43\x65\x07", answer: []byte("\x21\x43\x65\x07"), size: 4},
		// GETNUMKEYS of the first generation: an i64, that is not large.
		{ask: "\x06", size: 8},
	} {
		got := g.askTorch(ctx, try.ask, try.size)
		if len(got) == try.size && (bytes.Equal(got, try.answer) || try.answer == nil && bytes.Equal(got[4:], make([]byte, 4))) {
			if !g.refusesAgents(ctx) {
				return err
			}
			return g.dialError(ObstacleTorch, "a torch TCPStore is there, such as torchrun's or that of a job's workers", nil)
		}
	}
	return err
}

// refusesAgents tells whether a new connection of an agent is ended, or not answered, as the first was.
func (g *attempt) refusesAgents(ctx context.Context) bool {
	again := *g
	again.detectTorchStore = false
	nc, _, err := again.exchange(ctx, again.challenge)
	if err == nil {
		nc.Close()
		return false
	}
	obstacle, ok := errors.AsType[*DialError](err)
	return ok && (obstacle.Obstacle == ObstacleSilent || obstacle.Obstacle == ObstacleClosed)
}

// ask sends that on a new connection, and returns up to size bytes of the answer.
func (g *attempt) askTorch(ctx context.Context, question string, size int) []byte {
	ctx, cancel := context.WithTimeout(ctx, torchTimeout)
	defer cancel()
	nc, err := g.connect(ctx)
	if err != nil {
		return nil
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(torchTimeout))
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(nc, question); err != nil {
		return nil
	}
	got := make([]byte, size)
	n, _ := io.ReadFull(nc, got) // a peer that is no TCPStore says less
	return got[:n]
}
