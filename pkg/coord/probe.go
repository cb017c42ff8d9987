package coord

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"time"
)

// ProbeResult is what a store reports about itself to a client without a session.
type ProbeResult struct {
	// Version is elasticrun's version; empty if the store does not report it.
	Version string
	// RunID is the only run that the store serves; empty if it serves any run.
	RunID string
	// Agents is the number of sessions of the run in the options, or of all runs if it is empty. An agent in the
	// store's own process is not counted.
	Agents int
	// RoundTrip is the duration of the last request.
	RoundTrip time.Duration
	// Offset is how far the store's clock is ahead of the local clock. Its error is at most half of RoundTrip.
	Offset time.Duration
}

// Probe asks the store at an address to identify itself. It opens no session and leaves no trace in the store. Its
// errors are those of Dial: the store refuses a probe for the same reasons. Like Dial, Probe also tries the address
// that a member of the store's group names. It ignores the option TTL.
func Probe(ctx context.Context, opts DialOptions) (ProbeResult, error) {
	var result ProbeResult
	err := follow(ctx, &opts, func(ctx context.Context, a *attempt) error {
		nc, err := a.exchange(ctx, func(nc net.Conn) (err error) {
			if err = a.challenge(nc); err == nil {
				result, err = a.probe(nc)
			}
			return err
		})
		if err != nil {
			return err
		}
		nc.Close()
		return nil
	})
	if err != nil {
		return ProbeResult{}, err
	}
	return result, nil
}

// probe sends the probe request in place of join.
func (a *attempt) probe(nc net.Conn) (ProbeResult, error) {
	sentAt := time.Now()
	frame := probeRequest{a.proofs.proof(sideAgent, nil)}.append(nil)
	if _, err := nc.Write(frame); err != nil {
		return ProbeResult{}, a.noAnswer(err)
	}
	body, err := a.readFrame(nc, kindProbeReply)
	if err != nil {
		return ProbeResult{}, err
	}
	now := time.Now()
	r, err := decodeProbeReply(body)
	if err != nil {
		return ProbeResult{}, a.protocolError(err)
	}
	roundTrip := now.Sub(sentAt)
	return ProbeResult{
		Version: printable(r.version), RunID: printable(r.runID), Agents: int(r.agents), RoundTrip: roundTrip,
		Offset: time.Unix(0, r.time).Sub(sentAt.Add(roundTrip / 2).Round(0)), // both are wall clocks
	}, nil
}

// Connect reports whether something listens at an address. It sends nothing. Its errors are those of Dial.
func Connect(ctx context.Context, opts DialOptions) error {
	nc, err := (&attempt{opts: &opts}).connect(ctx)
	if err != nil {
		return err
	}
	return nc.Close()
}

// torchTimeout is how long a TCPStore may take to answer.
const torchTimeout = 500 * time.Millisecond

// detectTorch returns the error of a silent peer, changed to ObstacleTorch if the peer is a torch TCPStore. A TCPStore
// closes an agent's connection and never sends anything first. A store of agents also answers a TCPStore's questions,
// and it may have started in the meantime behind a proxy. But only a store of agents then answers an agent's second
// attempt.
func (a *attempt) detectTorch(ctx context.Context, err error) error {
	var obstacle *DialError
	if !a.detectTorchStore || !errors.As(err, &obstacle) || !obstacle.noAnswer() {
		return err
	}
	for _, question := range []struct {
		query  string
		answer []byte // the expected beginning; nil accepts anything
		size   int
	}{
		// torch 2.14, torch/csrc/distributed/c10d/TCPStoreBackend.hpp: VALIDATE with its magic number, and PING, which
		// returns the number sent.
		{query: "\x00\xce\xf7\x85\x3c\x0d\x21\x43\x65\x07", answer: []byte("\x21\x43\x65\x07"), size: 4},
		// torch 1.13, torch/csrc/distributed/c10d/TCPStore.cpp: GETNUMKEYS, whose answer is a small i64.
		{query: "\x06", size: 8},
	} {
		got := a.askTorch(ctx, question.query, question.size)
		smallNumber := question.answer == nil && len(got) == 8 && bytes.Equal(got[4:], make([]byte, 4))
		if len(got) == question.size && (bytes.Equal(got, question.answer) || smallNumber) {
			if !a.refusesAgents(ctx) {
				return err
			}
			return a.dialError(ObstacleTorch, "a torch TCPStore is there, such as torchrun's or that of a job's workers", nil)
		}
	}
	return err
}

// refusesAgents reports whether the peer also closes or ignores a second connection of an agent.
func (a *attempt) refusesAgents(ctx context.Context) bool {
	second := *a
	second.detectTorchStore = false
	nc, err := second.exchange(ctx, func(net.Conn) error { return nil })
	if err == nil {
		nc.Close()
		return false
	}
	obstacle, ok := errors.AsType[*DialError](err)
	return ok && obstacle.noAnswer()
}

// noAnswer reports whether the peer accepted the connection and did not answer.
func (e *DialError) noAnswer() bool {
	return e.Obstacle == ObstacleSilent || e.Obstacle == ObstacleClosed
}

// askTorch sends question on a new connection and returns up to size bytes of the answer.
func (a *attempt) askTorch(ctx context.Context, query string, size int) []byte {
	ctx, cancel := context.WithTimeout(ctx, torchTimeout)
	defer cancel()
	nc, err := a.connect(ctx)
	if err != nil {
		return nil
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(torchTimeout))
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(nc, query); err != nil {
		return nil
	}
	got := make([]byte, size)
	n, _ := io.ReadFull(nc, got) // a peer that is not a TCPStore may send less
	return got[:n]
}
