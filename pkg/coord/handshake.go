package coord

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"unicode"
)

// hello is the client's first frame. An empty run id or version means any.
type hello struct {
	secret  bool // the sender has a shared secret
	role    Role
	version string
	runID   string
}

// countsAsAgent reports whether the client is an agent of a run. A client without a run id may be anybody.
func (h hello) countsAsAgent() bool { return h.role == RoleAgent && h.runID != "" }

func (h hello) append(b []byte) []byte {
	begin := len(b)
	b = append(beginFrame(b, kindHello), flag(h.secret), byte(h.role))
	return endFrame(appendString(appendString(b, h.version), h.runID), begin)
}

func decodeHello(body []byte) (h hello, err error) {
	in := &fields{b: body}
	h = hello{secret: in.byte() != 0, role: Role(in.byte()), version: in.string(), runID: in.string()}
	return h, in.end()
}

// challenge is the store's answer to a hello. Its proof is the last field and covers all bytes before it. The store
// proves first: a client gives its proof only to a store that knows the secret.
type challenge struct {
	secret   bool
	instance string
	proof    []byte
}

func (c challenge) append(b []byte) []byte {
	begin := len(b)
	b = append(beginFrame(b, kindChallenge), flag(c.secret))
	return endFrame(appendBytes(appendString(b, c.instance), c.proof), begin)
}

func decodeChallenge(body []byte) (c challenge, err error) {
	in := &fields{b: body}
	c = challenge{secret: in.byte() != 0, instance: in.string(), proof: in.bytes()}
	return c, in.end()
}

// join asks for a session. Its proof is the last field and covers all bytes before it.
type join struct {
	ttl   int64  // in ns
	token string // of the session to resume; empty for a new session
	end   bool   // end the token's session instead: its process is dead
	proof []byte
}

func (j join) append(b []byte) []byte {
	begin := len(b)
	b = append(appendString(appendNumber(beginFrame(b, kindJoin), j.ttl), j.token), flag(j.end))
	return endFrame(appendBytes(b, j.proof), begin)
}

func decodeJoin(body []byte) (j join, err error) {
	in := &fields{b: body}
	j = join{ttl: in.number(), token: in.string(), end: in.byte() != 0, proof: in.bytes()}
	return j, in.end()
}

// welcome gives the client a session.
type welcome struct {
	instance string
	session  SessionID
	token    string
	ttl      int64 // in ns
	resumed  bool
}

func (w welcome) append(b []byte) []byte {
	begin := len(b)
	b = appendString(appendString(beginFrame(b, kindWelcome), w.instance), string(w.session))
	return endFrame(append(appendNumber(appendString(b, w.token), w.ttl), flag(w.resumed)), begin)
}

func decodeWelcome(body []byte) (w welcome, err error) {
	in := &fields{b: body}
	w = welcome{
		instance: in.string(), session: SessionID(in.string()), token: in.string(), ttl: in.number(),
		resumed: in.byte() != 0,
	}
	return w, in.end()
}

// probeRequest asks the store to identify itself. Its proof covers all earlier frames.
type probeRequest struct{ proof []byte }

func (l probeRequest) append(b []byte) []byte {
	begin := len(b)
	return endFrame(appendBytes(beginFrame(b, kindProbe), l.proof), begin)
}

func decodeProbeRequest(body []byte) (l probeRequest, err error) {
	in := &fields{b: body}
	l = probeRequest{proof: in.bytes()}
	return l, in.end()
}

// probeReply is the answer.
type probeReply struct {
	version, runID string
	agents         int64
	time           int64 // Unix time in ns
}

func (r probeReply) append(b []byte) []byte {
	begin := len(b)
	b = appendString(appendString(beginFrame(b, kindProbeReply), r.version), r.runID)
	return endFrame(appendNumber(appendNumber(b, r.agents), r.time), begin)
}

func decodeProbeReply(body []byte) (r probeReply, err error) {
	in := &fields{b: body}
	r = probeReply{version: in.string(), runID: in.string(), agents: in.number(), time: in.number()}
	return r, in.end()
}

// appendRefusal appends a refusal with a message for people.
func appendRefusal(b []byte, reason Reason, message string) []byte {
	begin := len(b)
	return endFrame(appendString(append(beginFrame(b, kindRefusal), byte(reason)), message), begin)
}

func decodeRefusal(body []byte) (reason Reason, message string, err error) {
	in := &fields{b: body}
	reason, message = Reason(in.byte()), printable(in.string())
	return reason, message, in.end()
}

// printable makes a peer's text safe to print: the result is one line and cannot control a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// transcript proves knowledge of a secret without sending it. Each side's proof covers the connection's binding, all
// frames of both sides so far, and the side's own name. So a proof is worthless on another connection, even for a relay
// that has a TLS connection with each side. A proof that is sent back to its sender is worthless too.
type transcript struct {
	secret  []byte // empty if there is no secret; proofs are then empty
	binding []byte // of the TLS connection, see binding
	frames  []byte // the bodies of all frames so far, each after its length
}

// add adds the body of a frame.
func (t *transcript) add(body []byte) {
	t.frames = append(binary.BigEndian.AppendUint32(t.frames, uint32(len(body))), body...)
}

// The names of the two sides in a proof.
const (
	sideAgent = "elasticrun agent, protocol 3"
	sideStore = "elasticrun store, protocol 3"
)

// proof returns the proof of side. It covers all added frames and message, which is a frame's body without the proof.
func (t *transcript) proof(side string, message []byte) []byte {
	if len(t.secret) == 0 {
		return nil
	}
	mac := hmac.New(sha256.New, t.secret)
	_, _ = mac.Write(appendString(nil, side)) // it never fails
	_, _ = mac.Write(t.binding)               // its length is fixed
	_, _ = mac.Write(t.frames)
	_, _ = mac.Write(message)
	return mac.Sum(nil)
}

// verifies reports whether proof is the proof of side.
func (t *transcript) verifies(side string, message, proof []byte) bool {
	return hmac.Equal(t.proof(side, message), proof)
}
