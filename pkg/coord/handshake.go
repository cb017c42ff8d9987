package coord

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"unicode"
)

// hello is the client's first frame. An empty run id or version means any.
type hello struct {
	secret  bool // the sender has a shared secret
	version string
	runID   string
	nonce   []byte
}

func (h hello) append(b []byte) []byte {
	begin := len(b)
	b = append(beginFrame(b, kindHello), flag(h.secret))
	b = appendString(appendString(b, h.version), h.runID)
	return endFrame(appendBytes(b, h.nonce), begin)
}

func decodeHello(body []byte) (h hello, err error) {
	in := &fields{b: body}
	h = hello{secret: in.byte() != 0, version: in.string(), runID: in.string(), nonce: in.bytes()}
	return h, in.end()
}

// challenge is the store's answer to a hello.
type challenge struct {
	secret   bool
	instance string
	nonce    []byte
}

func (c challenge) append(b []byte) []byte {
	begin := len(b)
	b = append(beginFrame(b, kindChallenge), flag(c.secret))
	return endFrame(appendBytes(appendString(b, c.instance), c.nonce), begin)
}

func decodeChallenge(body []byte) (c challenge, err error) {
	in := &fields{b: body}
	c = challenge{secret: in.byte() != 0, instance: in.string(), nonce: in.bytes()}
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

// welcome gives the client a session. Its proof is the last field and covers all bytes before it.
type welcome struct {
	instance string
	session  SessionID
	token    string
	ttl      int64 // in ns
	resumed  bool
	proof    []byte
}

func (w welcome) append(b []byte) []byte {
	begin := len(b)
	b = appendString(appendString(beginFrame(b, kindWelcome), w.instance), string(w.session))
	b = append(appendNumber(appendString(b, w.token), w.ttl), flag(w.resumed))
	return endFrame(appendBytes(b, w.proof), begin)
}

func decodeWelcome(body []byte) (w welcome, err error) {
	in := &fields{b: body}
	w = welcome{
		instance: in.string(), session: SessionID(in.string()), token: in.string(), ttl: in.number(),
		resumed: in.byte() != 0, proof: in.bytes(),
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

// probeReply is the answer. Its proof is the last field and covers all bytes before it.
type probeReply struct {
	version, runID string
	agents         int64
	time           int64 // Unix time in ns
	proof          []byte
}

func (r probeReply) append(b []byte) []byte {
	begin := len(b)
	b = appendString(appendString(beginFrame(b, kindProbeReply), r.version), r.runID)
	return endFrame(appendBytes(appendNumber(appendNumber(b, r.agents), r.time), r.proof), begin)
}

func decodeProbeReply(body []byte) (r probeReply, err error) {
	in := &fields{b: body}
	r = probeReply{version: in.string(), runID: in.string(), agents: in.number(), time: in.number(), proof: in.bytes()}
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

// printable makes a peer's text safe to print: it stays one line and cannot control a terminal.
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

// nonceSize is large enough that random nonces never repeat.
const nonceSize = 16

func newNonce() []byte {
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // it never fails
	return nonce
}

// transcript proves knowledge of a secret without sending it. Each side's proof covers all frames of both sides,
// including both nonces, and the side's own name. Therefore a proof is worthless on another connection, and so is a
// proof that is sent back to its sender.
type transcript struct {
	secret []byte // empty if there is no secret; proofs are then empty
	frames []byte // the bodies of all frames so far, each after its length
}

// add adds the body of a frame.
func (t *transcript) add(body []byte) {
	t.frames = append(binary.BigEndian.AppendUint32(t.frames, uint32(len(body))), body...)
}

// The names of the two sides in a proof.
const (
	sideAgent = "elasticrun agent, protocol 1"
	sideStore = "elasticrun store, protocol 1"
)

// proof returns the proof of side. It covers all added frames and message, which is a frame's body without the proof.
func (t *transcript) proof(side string, message []byte) []byte {
	if len(t.secret) == 0 {
		return nil
	}
	mac := hmac.New(sha256.New, t.secret)
	_, _ = mac.Write(appendString(nil, side)) // it never fails
	_, _ = mac.Write(t.frames)
	_, _ = mac.Write(message)
	return mac.Sum(nil)
}

// verifies reports whether proof is the proof of side.
func (t *transcript) verifies(side string, message, proof []byte) bool {
	return hmac.Equal(t.proof(side, message), proof)
}
