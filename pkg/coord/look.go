package coord

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"time"
)

// Sighting is what a store tells of itself to who only looks.
type Sighting struct {
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
func Look(ctx context.Context, opts DialOptions) (Sighting, error) {
	g := greeting{opts: &opts, curious: true}
	var s Sighting
	nc, _, err := g.talk(ctx, func(nc net.Conn, in *bufio.Reader) (err error) {
		if err = g.challenge(nc, in); err == nil {
			s, err = g.look(nc, in)
		}
		return err
	})
	if err != nil {
		return Sighting{}, err
	}
	nc.Close()
	return s, nil
}

// look is what comes in place of join.
func (g *greeting) look(nc net.Conn, in *bufio.Reader) (Sighting, error) {
	asked := time.Now()
	frame := look{g.proofs.proof(sideAgent, nil)}.append(nil)
	g.proofs.add(bodyOf(frame))
	if _, err := nc.Write(frame); err != nil {
		return Sighting{}, g.silence(err)
	}
	body, err := g.frame(in, kindSeen)
	if err != nil {
		return Sighting{}, err
	}
	now := time.Now()
	a, err := decodeSeen(body)
	if err != nil {
		return Sighting{}, g.foreign(err)
	}
	proof := a.proof
	a.proof = nil
	if !g.proofs.proves(sideStore, bodyOf(a.append(nil)), proof) {
		return Sighting{}, g.refused(ReasonSecret, "the store does not know the shared secret: it is not to be trusted")
	}
	trip := now.Sub(asked)
	return Sighting{
		Version: printable(a.version), RunID: printable(a.runID), Agents: int(a.agents), RoundTrip: trip,
		Offset: time.Unix(0, a.time).Sub(asked.Add(trip / 2).Round(0)), // wall clocks on both sides
	}, nil
}

// look answers a client that only looks. What does not fit is refused as it would be if it came to stay, but it is no matter for the log.
func (c *conn) look(h hello, heard []byte, proofs *transcript) ([]byte, bool, error) {
	s := c.server
	l, err := decodeLook(heard)
	if err != nil {
		return nil, false, fmt.Errorf("no look: %w", errMalformed)
	}
	if !proofs.proves(sideAgent, nil, l.proof) {
		return c.refuse(nil, refused{ReasonSecret, "the agent's shared secret is not the store's: give both the same"})
	}
	proofs.add(heard)
	if no := s.misfit(h); no != nil {
		return appendRefusal(nil, no.reason, no.line), false, nil
	}
	a := sight{version: s.opts.Version, runID: s.opts.RunID, agents: int64(s.sessionsOf(h.runID)), time: time.Now().UnixNano()}
	a.proof = proofs.proof(sideStore, bodyOf(a.append(nil)))
	return a.append(nil), false, nil
}

// sessionsOf counts the sessions that clients of a run have; empty is any run.
func (s *Server) sessionsOf(runID string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if runID == "" {
		return s.remote
	}
	n := 0
	for _, session := range s.core.sessions {
		if session.runID == runID {
			n++
		}
	}
	return n
}

// look asks what is there. Its proof is about all that was said before.
type look struct{ proof []byte }

func (l look) append(b []byte) []byte {
	begin := len(b)
	return endFrame(appendBytes(beginFrame(b, kindLook), l.proof), begin)
}

func decodeLook(body []byte) (l look, err error) {
	in := &fields{b: body}
	l = look{proof: in.bytes()}
	return l, in.end()
}

// sight is the answer. Its proof is the last field, and about all bytes before it.
type sight struct {
	version, runID string
	agents         int64
	time           int64 // Unix time in ns
	proof          []byte
}

func (a sight) append(b []byte) []byte {
	begin := len(b)
	b = appendString(appendString(beginFrame(b, kindSeen), a.version), a.runID)
	return endFrame(appendBytes(appendNumber(appendNumber(b, a.agents), a.time), a.proof), begin)
}

func decodeSeen(body []byte) (a sight, err error) {
	in := &fields{b: body}
	a = sight{version: in.string(), runID: in.string(), agents: in.number(), time: in.number(), proof: in.bytes()}
	return a, in.end()
}

// Connect finds out whether something listens at an address, and says nothing to it. Its errors are those of Dial.
func Connect(ctx context.Context, opts DialOptions) error {
	nc, err := (&greeting{opts: &opts}).connect(ctx)
	if err != nil {
		return err
	}
	return nc.Close()
}
