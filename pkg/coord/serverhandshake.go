package coord

import (
	"context"
	"crypto/rand"
	"crypto/tls"
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
	if errors.Is(err, errOtherProtocol) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: in the handshake: %w", errMalformed, err)
	}
	if len(out) > 0 && c.send(out) != nil {
		c.abort()
	} else if c.isMember {
		c.handOver()
	}
	return joined, nil
}

// refusal is why the store refuses a client.
type refusal struct {
	reason  Reason
	message string
}

// sameSecret is the advice if the secrets differ. Every program that connects to a store has these settings.
const sameSecret = "give both the same secret, by --rdzv-secret-file=FILE or PET_RDZV_SECRET"

var wrongSecret = refusal{ReasonSecret, "the agent's shared secret differs from the store's: " + sameSecret}

// runHandshake gives the client a session, refuses it, or answers a probe. It returns the frames that are still to be
// sent.
func (c *conn) runHandshake() (out []byte, joined bool, err error) {
	if err := c.secure(); err != nil {
		if why := refusesCertificate(err); why != nil {
			c.server.recordRefusal(c.nc, *why)
			c.drain()
			return nil, false, nil
		}
		return nil, false, err
	}
	h, proofs, err := c.begin()
	if err != nil {
		return nil, false, err
	}
	if h.secret != (len(proofs.secret) > 0) {
		message := "the store has a shared secret and the agent has none: give the agent the store's secret, " +
			"by --rdzv-secret-file=FILE or PET_RDZV_SECRET"
		if h.secret {
			message = "the agent has a shared secret and the store has none: " + sameSecret
		}
		return c.refuse(refusal{ReasonSecret, message})
	}
	if err := c.challenge(h, proofs); err != nil {
		return nil, false, err
	}
	k, body, err := c.read(maxHandshake, make([]byte, frameHeader))
	switch {
	case errors.Is(err, io.EOF):
		return nil, false, nil // the client wants another store
	case err != nil:
		return nil, false, err
	case k == kindRefusal: // the client does not accept the store's proof
		c.server.recordRefusal(c.nc, wrongSecret)
		return nil, false, nil
	case k == kindProbe:
		return c.answerProbe(h, body, proofs)
	}
	j, err := decodeJoin(body)
	if err != nil || k != kindJoin {
		return nil, false, fmt.Errorf("no join: %w", errMalformed)
	}
	if !proofs.verifies(sideAgent, bodyOf(join{ttl: j.ttl, token: j.token, end: j.end}.append(nil)), j.proof) {
		return c.refuse(wrongSecret)
	}
	var w welcome
	var why *refusal
	if h.role == RoleMember && !j.end {
		if why := c.server.mismatch(h); why != nil {
			return c.refuse(*why)
		}
		// Do not use send, which may wait for answers of the members.
		_, err := c.nc.Write(welcome{instance: c.server.opts.InstanceID}.append(nil))
		c.isMember = err == nil
		return nil, false, err
	}
	if j.end {
		w, why = c.server.endSession(h, j.token)
	} else {
		if h.countsAsAgent() {
			c.joinedRun = h.runID
		}
		w, why = c.admit(h, j)
	}
	if why != nil {
		return c.refuse(*why)
	}
	return w.append(nil), !j.end, nil
}

// errOtherProtocol ends the handshake of a client that speaks another version of the protocol and was refused.
var errOtherProtocol = errors.New("the client speaks another version of the protocol")

// secure reads the preamble and runs the TLS handshake.
func (c *conn) secure() error {
	if err := c.readPreamble(); err != nil {
		return err
	}
	config, err := c.server.tlsConfig()
	if err != nil {
		return err
	}
	limit := handshakeLimit(config)
	c.below = &limitedConn{Conn: c.nc, unsent: appendPreamble(nil), limit: &limit}
	if err := c.below.readBegin(); err != nil {
		return err
	}
	if err := c.awaitTurn(c.below); err != nil {
		return err
	}
	defer c.below.stopTurn()
	secure := &servedConn{secureConn{Conn: tls.Server(c.below, config), nc: c.nc}, c.below}
	if err := secure.HandshakeContext(context.Background()); err != nil {
		return err
	}
	c.server.mu.Lock()
	c.nc = secure
	c.server.mu.Unlock()
	if c.binding, err = secure.binding(); err != nil {
		return fmt.Errorf("bind the handshake to the TLS connection: %w", err)
	}
	return nil
}

// readPreamble reads the preamble. A client of another version gets a refusal in the clear, whose format never changes.
func (c *conn) readPreamble() error {
	preamble := make([]byte, preambleSize)
	if _, err := io.ReadFull(c.nc, preamble); err != nil {
		return err
	}
	if string(preamble[:len(magic)]) != magic {
		return errors.New("the connection does not begin with the agents' preamble")
	}
	version := binary.BigEndian.Uint16(preamble[len(magic):])
	if version == protocolVersion {
		return nil
	}
	refusal, _, _ := c.refuse(refusal{ReasonProtocol, fmt.Sprintf(
		"the agent speaks version %d of the agents' protocol and the store speaks version %d: "+
			"run the same elasticrun on all nodes", version, protocolVersion)})
	if c.send(append(appendPreamble(nil), refusal...)) == nil {
		c.drain()
	}
	return errOtherProtocol
}

// begin reads the hello.
func (c *conn) begin() (hello, *transcript, error) {
	k, body, err := c.read(maxHandshake, make([]byte, frameHeader))
	if err != nil {
		return hello{}, nil, err
	}
	h, err := decodeHello(body)
	if err != nil || k != kindHello {
		return hello{}, nil, fmt.Errorf("no hello: %w", errMalformed)
	}
	proofs := &transcript{secret: c.server.opts.Secret, binding: c.binding}
	proofs.add(body)
	return h, proofs, nil
}

// challenge sends the challenge with the store's proof.
func (c *conn) challenge(h hello, proofs *transcript) error {
	answer := challenge{secret: h.secret, instance: c.server.opts.InstanceID}
	answer.proof = proofs.proof(sideStore, bodyOf(answer.append(nil)))
	frame := answer.append(nil)
	proofs.add(bodyOf(frame))
	c.server.sent.count(1, len(frame))
	_, err := c.nc.Write(frame)
	return err
}

// bodyOf returns a frame without its length and kind.
func bodyOf(frame []byte) []byte { return frame[frameHeader+1:] }

// refuse records the refusal. It returns the refusal's frame if the caller must still send it.
func (c *conn) refuse(why refusal) ([]byte, bool, error) {
	c.server.recordRefusal(c.nc, why)
	frame := appendRefusal(nil, why.reason, why.message)
	if why.reason == ReasonElsewhere { // send may wait for the member that serves
		c.server.sent.count(1, len(frame))
		_, _ = c.nc.Write(frame) // the client may have gone
		return nil, false, nil
	}
	return frame, false, nil
}

// admit gives a client that knows the secret a session, or returns why not.
func (c *conn) admit(h hello, j join) (welcome, *refusal) {
	s := c.server
	if why := s.decline(h); why != nil {
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
	if admit := s.opts.Admit; admit != nil && h.countsAsAgent() {
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
	if at := ipAddr(c.nc.LocalAddr()).Addr(); at.IsValid() && h.countsAsAgent() {
		s.reached[at]++
	}
	s.startTicker()
	return c.attachSession(h, session, false), nil
}

// mismatch returns why the client does not belong to this store, or nil.
func (s *Server) mismatch(h hello) *refusal {
	switch {
	case !validRunID(h.runID) || h.role > RoleMember || h.role == RoleMember && s.opts.OnMember == nil:
		return &refusal{ReasonRunID, "the run id has a slash or a control character, or is too long"}
	case h.version != s.opts.Version && h.version != "" && s.opts.Version != "":
		return &refusal{ReasonVersion, fmt.Sprintf(
			"the agent is elasticrun %s and the store is elasticrun %s: run the same version on all nodes",
			printable(h.version), s.opts.Version)}
	case h.runID != s.opts.RunID && (h.countsAsAgent() || h.role == RoleMember) && s.opts.RunID != "":
		return &refusal{ReasonRunID, fmt.Sprintf(
			"the store belongs to another job: its run id is %q and the agent's is %q; give this node the same --rdzv-id, "+
				"or each job its own endpoint",
			s.opts.RunID, h.runID)}
	}
	return nil
}

// minTTL is the shortest TTL that a client can have.
const minTTL = 50 * time.Millisecond

// resume gives the client its earlier session. It closes an older connection of that session. server.mu is held.
func (c *conn) resume(h hello, token string) (welcome, *refusal) {
	s := c.server
	session, why := s.sessionOf(h, token)
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
	c.session, session.from = session, ipAddr(c.nc.RemoteAddr()).Addr()
	session.known, session.role, session.runID = true, h.role, h.runID
	c.server.removePending(c)
	c.server.sessionConns[session] = c
	c.below.limit = nil
	c.writing = true // the welcome must be the first frame
	c.nc.SetDeadline(time.Time{})
	return welcome{
		instance: c.server.opts.InstanceID, session: session.id, token: string(session.id) + "." + session.token,
		ttl: int64(session.ttl), resumed: resumed,
	}
}

// sessionOf returns the session of a client's token. A session belongs to one role of one run. server.mu is held.
func (s *Server) sessionOf(h hello, token string) (*session, *refusal) {
	id, secret, _ := strings.Cut(token, ".")
	session := s.core.resume(SessionID(id), secret)
	if session != nil && (!session.known || session.role == h.role && session.runID == h.runID) {
		return session, nil
	}
	return nil, &refusal{ReasonGone, "the session has ended"}
}

// lastFramesTimeout is how long endSession waits for the connection of a dead process to end, so that the store handles
// what the process sent last.
const lastFramesTimeout = 500 * time.Millisecond

// endSession ends the session of a dead process at the request of a client that has its token.
func (s *Server) endSession(h hello, token string) (welcome, *refusal) {
	if why := s.decline(h); why != nil {
		return welcome{}, why
	}
	s.mu.Lock()
	session, why := s.sessionOf(h, token)
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
		return c.refuse(wrongSecret)
	}
	if why := s.decline(h); why != nil && why.reason == ReasonElsewhere {
		return c.refuse(*why)
	} else if why != nil {
		return appendRefusal(nil, why.reason, why.message), false, nil
	}
	r := probeReply{
		version: s.opts.Version, runID: s.opts.RunID, agents: int64(s.sessionsOf(h.runID)), time: time.Now().UnixNano(),
	}
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
		if session.runID == runID && session.role == RoleAgent {
			n++
		}
	}
	return n
}
