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

// handshake runs the handshake. It returns true, with writing set, if the client has a session, and false if the
// connection must end.
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

// refusal is why the store refuses a client.
type refusal struct {
	reason  Reason
	message string
}

var wrongSecret = refusal{ReasonSecret, "the agent's shared secret differs from the store's: give both the same secret"}

// runHandshake gives the client a session, refuses it, or answers a probe. It returns the frames that are still to be
// sent.
func (c *conn) runHandshake() (out []byte, joined bool, err error) {
	s := c.server
	scratch := make([]byte, preambleSize)
	if _, err := io.ReadFull(c.in, scratch); err != nil {
		return nil, false, err
	}
	if string(scratch[:len(magic)]) != magic {
		return nil, false, errors.New("the connection does not begin with the agents' preamble")
	}
	version := binary.BigEndian.Uint16(scratch[len(magic):])
	out = appendPreamble(nil)
	if version != protocolVersion {
		return c.refuse(out, refusal{ReasonProtocol, fmt.Sprintf(
			"the agent speaks version %d of the agents' protocol and the store speaks version %d: "+
				"run the same elasticrun on all nodes", version, protocolVersion)})
	}
	k, body, err := c.read(maxHandshake, scratch)
	if err != nil {
		return nil, false, err
	}
	h, err := decodeHello(body)
	if err != nil || k != kindHello {
		return nil, false, fmt.Errorf("no hello: %w", errMalformed)
	}
	proofs := transcript{secret: s.opts.Secret}
	proofs.add(body)
	if h.secret != (len(s.opts.Secret) > 0) {
		message := "the store has a shared secret and the agent has none: give the agent the store's secret"
		if h.secret {
			message = "the agent has a shared secret and the store has none: give both the same secret"
		}
		return c.refuse(out, refusal{ReasonSecret, message})
	}

	out = challenge{secret: h.secret, instance: s.opts.InstanceID, nonce: newNonce()}.append(out)
	proofs.add(out[preambleSize+frameHeader+1:])
	s.sent.count(1, len(out))
	if _, err := c.nc.Write(out); err != nil {
		return nil, false, err
	}
	if k, body, err = c.read(maxHandshake, scratch); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, false, nil // the client wants another store than this one
		}
		return nil, false, err
	}
	if k == kindProbe {
		return c.answerProbe(h, body, &proofs)
	}
	j, err := decodeJoin(body)
	if err != nil || k != kindJoin {
		return nil, false, fmt.Errorf("no join: %w", errMalformed)
	}
	if !proofs.verifies(sideAgent, bodyOf(join{ttl: j.ttl, token: j.token, end: j.end}.append(nil)), j.proof) {
		return c.refuse(nil, wrongSecret)
	}
	proofs.add(body)
	if j.end {
		w, why := s.endSession(h, j.token)
		if why != nil {
			return c.refuse(nil, *why)
		}
		w.proof = proofs.proof(sideStore, bodyOf(w.append(nil)))
		return w.append(nil), false, nil
	}
	c.runID = h.runID
	w, why := c.admit(h, j)
	if why != nil {
		return c.refuse(nil, *why)
	}
	w.proof = proofs.proof(sideStore, bodyOf(w.append(nil)))
	return w.append(nil), true, nil
}

// bodyOf returns a frame without its length and kind.
func bodyOf(frame []byte) []byte { return frame[frameHeader+1:] }

// refuse records the refusal and appends its frame to out.
func (c *conn) refuse(out []byte, why refusal) ([]byte, bool, error) {
	c.server.recordRefusal(c.nc, why)
	return appendRefusal(out, why.reason, why.message), false, nil
}

// admit gives a client that knows the secret a session, or returns why not.
func (c *conn) admit(h hello, j join) (welcome, *refusal) {
	s := c.server
	if why := s.mismatch(h); why != nil {
		return welcome{}, why
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return welcome{}, &refusal{ReasonClosing, "the store is closed"}
	}
	if j.token != "" {
		return c.resume(h, j.token)
	}
	if s.drain != nil {
		return welcome{}, &refusal{ReasonClosing, "the store is closing"}
	}
	if err := s.core.budget.claim(sessionSize, true); err != nil {
		_, message := codeOf(err)
		return welcome{}, &refusal{ReasonFull, "the store is full: " + message}
	}
	if admit := s.opts.Admit; admit != nil && h.runID != "" {
		if why := admit(h.runID); why != "" {
			return welcome{}, &refusal{ReasonFull, why}
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

// mismatch returns why the client does not belong to this store, or nil.
func (s *Server) mismatch(h hello) *refusal {
	switch {
	case h.version != s.opts.Version && h.version != "" && s.opts.Version != "":
		return &refusal{ReasonVersion, fmt.Sprintf(
			"the agent is elasticrun %s and the store is elasticrun %s: run the same version on all nodes",
			printable(h.version), s.opts.Version)}
	case h.runID != s.opts.RunID && h.runID != "" && s.opts.RunID != "":
		return &refusal{ReasonRunID, fmt.Sprintf(
			"the store belongs to another job: its run id is %q and the agent's is %q; give each job its own endpoint",
			s.opts.RunID, h.runID)}
	}
	return nil
}

// minTTL is the shortest TTL that a client can have.
const minTTL = 50 * time.Millisecond

// resume gives the client its earlier session. It closes an older connection of that session. server.mu is held.
func (c *conn) resume(h hello, token string) (welcome, *refusal) {
	s := c.server
	session, why := s.sessionOf(token)
	if why != nil {
		return welcome{}, why
	}
	if older := s.sessionConns[session]; older != nil {
		older.session = nil
		older.closeWith(appendExitNotice(nil, codeTaken, "another connection has resumed it"))
	}
	return c.attachSession(h, session, true), nil
}

// attachSession makes c the connection of session. server.mu is held.
func (c *conn) attachSession(h hello, session *session, resumed bool) welcome {
	c.session, session.runID, session.from = session, h.runID, remoteAddr(c.nc)
	c.server.removePending(c)
	c.server.sessionConns[session] = c
	c.writing = true // the welcome must be the first frame
	c.nc.SetDeadline(time.Time{})
	return welcome{
		instance: c.server.opts.InstanceID, session: session.id, token: string(session.id) + "." + session.token,
		ttl: int64(session.ttl), resumed: resumed,
	}
}

// sessionOf returns the session of a client's token. server.mu is held.
func (s *Server) sessionOf(token string) (*session, *refusal) {
	id, secret, _ := strings.Cut(token, ".")
	if session := s.core.resume(SessionID(id), secret); session != nil {
		return session, nil
	}
	return nil, &refusal{ReasonGone, "the session has ended"}
}

// lastFramesTimeout is how long endSession waits for the connection of a dead process to end, so that the store handles
// what the process sent last.
const lastFramesTimeout = 500 * time.Millisecond

// endSession ends the session of a dead process at the request of a client that has its token.
func (s *Server) endSession(h hello, token string) (welcome, *refusal) {
	if why := s.mismatch(h); why != nil {
		return welcome{}, why
	}
	s.mu.Lock()
	session, why := s.sessionOf(token)
	var holder *conn
	if session != nil {
		holder = s.sessionConns[session]
	}
	s.mu.Unlock()
	if why != nil {
		return welcome{}, why
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
	if !session.ended { // it may have ended during the wait
		s.core.endSession(session)
		s.sessionEnded(session, "its process has ended")
	}
	return welcome{instance: s.opts.InstanceID, session: session.id, resumed: true}, nil
}

// answerProbe answers a client that only probes the store. The client gets the same refusals as a client that joins,
// but a mismatch is not logged.
func (c *conn) answerProbe(h hello, body []byte, proofs *transcript) ([]byte, bool, error) {
	s := c.server
	request, err := decodeProbeRequest(body)
	if err != nil {
		return nil, false, fmt.Errorf("no probe request: %w", errMalformed)
	}
	if !proofs.verifies(sideAgent, nil, request.proof) {
		return c.refuse(nil, wrongSecret)
	}
	proofs.add(body)
	if why := s.mismatch(h); why != nil {
		return appendRefusal(nil, why.reason, why.message), false, nil
	}
	r := probeReply{
		version: s.opts.Version, runID: s.opts.RunID, agents: int64(s.sessionsOf(h.runID)), time: time.Now().UnixNano(),
	}
	r.proof = proofs.proof(sideStore, bodyOf(r.append(nil)))
	return r.append(nil), false, nil
}

// sessionsOf returns the number of sessions of a run's clients. An empty run id means all runs.
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
