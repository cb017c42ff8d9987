package coord

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// handshake gives the client a session, or refuses it. It returns false if the connection is to end, and else leaves
// writing set.
func (c *conn) handshake() (bool, error) {
	s := c.server
	c.nc.SetDeadline(time.Now().Add(s.opts.HandshakeTimeout))
	out, joined, err := c.runHandshake()
	if err != nil {
		return false, fmt.Errorf("%w: in the handshake: %w", errMalformed, err)
	}
	if len(out) > 0 && c.send(out) != nil {
		c.abort()
	}
	return joined, nil
}

// refused is the end of a handshake.
type refusal struct {
	reason Reason
	line   string
}

// greet speaks the handshake. It returns what is still to be sent.
func (c *conn) runHandshake() (out []byte, joined bool, err error) {
	s := c.server
	scratch := make([]byte, preambleSize)
	if _, err := io.ReadFull(c.in, scratch); err != nil {
		return nil, false, err
	}
	if string(scratch[:len(magic)]) != magic {
		return nil, false, errors.New("it does not begin as an agent's")
	}
	theirs := binary.BigEndian.Uint16(scratch[len(magic):])
	out = appendPreamble(nil)
	if theirs != protocolVersion {
		return c.refuse(out, refusal{ReasonProtocol, fmt.Sprintf(
			"the agent speaks version %d of the agents' protocol, the store version %d: let all nodes run the same elasticrun",
			theirs, protocolVersion)})
	}
	k, heard, err := c.read(maxHandshake, scratch)
	if err != nil {
		return nil, false, err
	}
	h, err := decodeHello(heard)
	if err != nil || k != kindHello {
		return nil, false, fmt.Errorf("no hello: %w", errMalformed)
	}
	proofs := transcript{secret: s.opts.Secret}
	proofs.add(heard)
	if h.secret != (len(s.opts.Secret) > 0) {
		line := "the store has a shared secret and the agent none: give the agent the store's"
		if h.secret {
			line = "the agent has a shared secret and the store none: give both the same"
		}
		return c.refuse(out, refusal{ReasonSecret, line})
	}

	out = challenge{secret: h.secret, instance: s.opts.InstanceID, nonce: newNonce()}.append(out)
	proofs.add(out[preambleSize+frameHeader+1:])
	s.sent.count(1, len(out))
	if _, err := c.nc.Write(out); err != nil {
		return nil, false, err
	}
	if k, heard, err = c.read(maxHandshake, scratch); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, false, nil // the client wants another store than this one
		}
		return nil, false, err
	}
	if k == kindProbe {
		return c.answerProbe(h, heard, &proofs)
	}
	j, err := decodeJoin(heard)
	if err != nil || k != kindJoin {
		return nil, false, fmt.Errorf("no join: %w", errMalformed)
	}
	if !proofs.verifies(sideAgent, bodyOf(join{ttl: j.ttl, token: j.token, end: j.end}.append(nil)), j.proof) {
		return c.refuse(nil, refusal{ReasonSecret, "the agent's shared secret is not the store's: give both the same"})
	}
	proofs.add(heard)
	if j.end {
		w, no := s.endSession(h, j.token)
		if no != nil {
			return c.refuse(nil, *no)
		}
		w.proof = proofs.proof(sideStore, bodyOf(w.append(nil)))
		return w.append(nil), false, nil
	}
	c.runID = h.runID
	w, no := c.admit(h, j)
	if no != nil {
		return c.refuse(nil, *no)
	}
	w.proof = proofs.proof(sideStore, bodyOf(w.append(nil)))
	return w.append(nil), true, nil
}

// bodyOf is a frame without its length and kind.
func bodyOf(frame []byte) []byte { return frame[frameHeader+1:] }

// refuse ends a handshake.
func (c *conn) refuse(out []byte, no refusal) ([]byte, bool, error) {
	c.server.recordRefusal(c.nc, no)
	return appendRefusal(out, no.reason, no.line), false, nil
}

// admit gives a client that knows the secret a session, or says why not.
func (c *conn) admit(h hello, j join) (welcome, *refusal) {
	s := c.server
	if no := s.mismatch(h); no != nil {
		return welcome{}, no
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return welcome{}, &refusal{ReasonClosing, "the store is closed"}
	}
	if j.token != "" {
		return c.resume(h, j.token)
	}
	switch {
	case s.drain != nil:
		return welcome{}, &refusal{ReasonClosing, "the store is about to close"}
	case s.opts.MaxAgents > 0 && s.remote >= s.opts.MaxAgents:
		return welcome{}, &refusal{ReasonFull, fmt.Sprintf("the store has %d agents, as many as it may", s.remote)}
	}
	if err := s.core.budget.claim(sessionSize, true); err != nil {
		_, line := codeOf(err)
		return welcome{}, &refusal{ReasonFull, "the store is full: " + line}
	}
	if admit := s.opts.Admit; admit != nil && h.runID != "" {
		if no := admit(h.runID); no != "" {
			return welcome{}, &refusal{ReasonFull, no}
		}
	}
	ttl := s.opts.SessionTTL
	if j.ttl > 0 {
		ttl = min(max(time.Duration(j.ttl), minTTL), durationLimit)
	}
	session := s.core.openSession(SessionID(rand.Text()), rand.Text(), ttl, s.clock())
	s.remote++
	if at := localAddr(c.nc).Addr(); at.IsValid() && h.runID != "" {
		s.reached[at]++
	}
	s.startTicker()
	return c.attachSession(h, session, false), nil
}

// misfit says why a client is wrong here, or nil.
func (s *Server) mismatch(h hello) *refusal {
	switch {
	case h.version != s.opts.Version && h.version != "" && s.opts.Version != "":
		return &refusal{ReasonVersion, fmt.Sprintf(
			"the agent is elasticrun %s, the store %s: let all nodes run the same", printable(h.version), s.opts.Version)}
	case h.runID != s.opts.RunID && h.runID != "" && s.opts.RunID != "":
		return &refusal{ReasonRunID, fmt.Sprintf(
			"it is the store of another job, with run id %q, and the agent's is %q: give each job an endpoint of its own",
			s.opts.RunID, h.runID)}
	}
	return nil
}

// leastTTL is the shortest a client can have.
const minTTL = 50 * time.Millisecond

// resume gives the client the session that it had. An older connection that holds it ends. server.mu is held.
func (c *conn) resume(h hello, token string) (welcome, *refusal) {
	s := c.server
	session, no := s.sessionOf(token)
	if no != nil {
		return welcome{}, no
	}
	if older := s.sessionConns[session]; older != nil {
		older.session = nil
		older.closeWith(appendOver(nil, codeTaken, "another connection has taken it over"))
	}
	return c.attachSession(h, session, true), nil
}

// hold makes session that of c. server.mu is held.
func (c *conn) attachSession(h hello, session *session, resumed bool) welcome {
	c.session, session.runID = session, h.runID
	c.server.removePending(c)
	c.server.sessionConns[session] = c
	c.writing = true // nothing else is to be sent before the welcome
	c.nc.SetDeadline(time.Time{})
	return welcome{
		instance: c.server.opts.InstanceID, session: session.id, token: string(session.id) + "." + session.token,
		ttl: int64(session.ttl), resumed: resumed,
	}
}

// sessionOf finds the session that a client has. server.mu is held.
func (s *Server) sessionOf(token string) (*session, *refusal) {
	id, secret, _ := strings.Cut(token, ".")
	if session := s.core.resume(SessionID(id), secret); session != nil {
		return session, nil
	}
	return nil, &refusal{ReasonGone, "the session is over"}
}

// lastFrames is how long the connection of a process that has died may take to end, so that what the process sent last counts.
const lastFramesTimeout = 500 * time.Millisecond

// endSession ends the session of a process that has died, on behalf of whoever has its token.
func (s *Server) endSession(h hello, token string) (welcome, *refusal) {
	if no := s.mismatch(h); no != nil {
		return welcome{}, no
	}
	s.mu.Lock()
	session, no := s.sessionOf(token)
	var holder *conn
	if session != nil {
		holder = s.sessionConns[session]
	}
	s.mu.Unlock()
	if no != nil {
		return welcome{}, no
	}
	if holder != nil {
		timer := time.NewTimer(lastFramesTimeout)
		defer timer.Stop()
		select {
		case <-holder.runDone:
		case <-timer.C:
		case <-s.stop:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !session.ended { // meanwhile
		s.core.endSession(session)
		s.sessionEnded(session, "its process has ended")
	}
	return welcome{instance: s.opts.InstanceID, session: session.id, resumed: true}, nil
}

// look answers a client that only looks. What does not fit is refused as it would be if it came to stay, but it is no matter for the log.
func (c *conn) answerProbe(h hello, heard []byte, proofs *transcript) ([]byte, bool, error) {
	s := c.server
	l, err := decodeProbeRequest(heard)
	if err != nil {
		return nil, false, fmt.Errorf("no look: %w", errMalformed)
	}
	if !proofs.verifies(sideAgent, nil, l.proof) {
		return c.refuse(nil, refusal{ReasonSecret, "the agent's shared secret is not the store's: give both the same"})
	}
	proofs.add(heard)
	if no := s.mismatch(h); no != nil {
		return appendRefusal(nil, no.reason, no.line), false, nil
	}
	a := probeReply{version: s.opts.Version, runID: s.opts.RunID, agents: int64(s.sessionsOf(h.runID)), time: time.Now().UnixNano()}
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
