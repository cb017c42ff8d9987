package security

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// The agents' protocol, as the table in pkg/coord/wire.go describes it.
const (
	preamble = "\xe5elrun\r\n\x00\x03"

	kindHello, kindChallenge, kindJoin, kindWelcome, kindRefusal = 1, 2, 3, 4, 5
	kindCommit, kindWatch, kindReply, kindBatch, kindExitNotice  = 7, 8, 11, 12, 13
	kindProbe, kindProbeReply                                    = 14, 15

	roleAgent, roleObserver, roleCloser = 0, 1, 2

	reasonProtocol, reasonRunID, reasonSecret, reasonGone = 1, 3, 4, 5

	codeDone, codeDenied = 0, 8

	flagDelete, flagOwned = 1, 2
)

// peerTimeout bounds everything that a peer does. It is far longer than a store needs.
const peerTimeout = 20 * time.Second

// frame is one message inside TLS.
type frame struct {
	kind byte
	body []byte
}

func (f frame) bytes() []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(1+len(f.body)))
	return append(append(b, f.kind), f.body...)
}

func readFrame(r io.Reader) (frame, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size == 0 || size > 1<<20 {
		return frame{}, fmt.Errorf("a frame of %d bytes", size)
	}
	f := frame{kind: head[4], body: make([]byte, size-1)}
	_, err := io.ReadFull(r, f.body)
	return f, err
}

// text appends a string after its length, which is how frames hold strings, bytes and proofs.
func text(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// cutText reads what text has written.
func cutText(b []byte) (s string, rest []byte) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return "", nil
	}
	return string(b[n : n+int(size)]), b[n+int(size):]
}

// afterPreamble is a connection whose peer sends the preamble before TLS.
type afterPreamble struct {
	net.Conn
	seen bool
}

func (c *afterPreamble) Read(b []byte) (int, error) {
	if !c.seen {
		got := make([]byte, len(preamble))
		if _, err := io.ReadFull(c.Conn, got); err != nil {
			return 0, err
		}
		if string(got) != preamble {
			return 0, fmt.Errorf("the preamble is %q", got)
		}
		c.seen = true
	}
	return c.Conn.Read(b)
}

// clientTLS returns the configuration of a peer in a client's place.
func clientTLS() *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.CurveP256},
		MinVersion: tls.VersionTLS13,
	}
}

// peer is a client that speaks the protocol by itself.
type peer struct {
	*tls.Conn
	secret string
	said   []byte // what the proofs cover: the bodies of the frames so far, each after its length
	proved bool   // the store has proved that it has the secret
	joined frame  // the join frame, once it has been sent
	token  string // of the session
	id     string // of the session
}

// connect opens a TCP connection to a store. The test closes it.
func connect(t testing.TB, addr string) net.Conn {
	t.Helper()
	nc, err := net.DialTimeout("tcp", addr, peerTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(peerTimeout))
	return nc
}

// newPeer runs the TLS handshake on a connection to a store.
func newPeer(nc net.Conn, secret string) (*peer, error) {
	if _, err := io.WriteString(nc, preamble); err != nil {
		return nil, err
	}
	p := &peer{Conn: tls.Client(&afterPreamble{Conn: nc}, clientTLS()), secret: secret}
	return p, p.Handshake()
}

// dial is connect and newPeer.
func dial(t testing.TB, addr, secret string) *peer {
	t.Helper()
	p, err := newPeer(connect(t, addr), secret)
	if err != nil {
		t.Fatalf("TLS with the store at %s: %v", addr, err)
	}
	return p
}

// helloBody returns the body of a hello of any version.
func helloBody(hasSecret bool, role byte, run string) []byte {
	flags := byte(0)
	if hasSecret {
		flags = 1
	}
	return text(text([]byte{flags, role}, ""), run)
}

func (p *peer) send(f frame) error {
	_, err := p.Write(f.bytes())
	return err
}

// say sends a frame of the handshake and adds it to what proofs cover.
func (p *peer) say(f frame) error {
	p.heard(f.body)
	return p.send(f)
}

// heard adds the body of a frame to what proofs cover.
func (p *peer) heard(body []byte) {
	p.said = append(binary.BigEndian.AppendUint32(p.said, uint32(len(body))), body...)
}

// hello sends the hello and returns the store's answer.
func (p *peer) hello(role byte, run string) (frame, error) {
	if err := p.say(frame{kindHello, helloBody(p.secret != "", role, run)}); err != nil {
		return frame{}, err
	}
	answer, err := readFrame(p)
	if err == nil && answer.kind == kindChallenge && p.secret != "" {
		_, rest := cutText(answer.body[1:]) // the instance id; the proof follows
		covered := append(bytes.Clone(answer.body[:len(answer.body)-len(rest)]), 0)
		got, _ := cutText(rest)
		p.proved = got == p.proof("store", covered)
	}
	p.heard(answer.body)
	return answer, err
}

// proof returns the proof of a side, "agent" or "store", over all frames so far and message.
func (p *peer) proof(side string, message []byte) string {
	state := p.ConnectionState()
	binding, err := state.ExportKeyingMaterial("EXPORTER-elasticrun-agents", nil, 32)
	if err != nil {
		panic(err) // the handshake has not been run: a defect of the test
	}
	mac := hmac.New(sha256.New, []byte(p.secret))
	mac.Write(text(nil, "elasticrun "+side+", protocol 3"))
	mac.Write(binding)
	mac.Write(p.said)
	mac.Write(message)
	return string(mac.Sum(nil))
}

// join asks for a session, or with a token for that session, or with end for its end. It returns the store's answer.
func (p *peer) join(token string, end bool) (frame, error) {
	body := append(text([]byte{0}, token), 0) // TTL 0: the store's
	if end {
		body[len(body)-1] = 1
	}
	proof := ""
	if p.secret != "" {
		proof = p.proof("agent", append(slices.Clone(body), 0)) // the proof is empty in what it covers
	}
	p.joined = frame{kindJoin, text(body, proof)}
	if err := p.send(p.joined); err != nil {
		return frame{}, err
	}
	answer, err := readFrame(p)
	if err == nil && answer.kind == kindWelcome {
		var rest []byte
		_, rest = cutText(answer.body)
		p.id, rest = cutText(rest)
		p.token, _ = cutText(rest)
	}
	return answer, err
}

// enter is hello and join, which must succeed.
func enter(t testing.TB, addr, secret string, role byte, run string) *peer {
	t.Helper()
	p := dial(t, addr, secret)
	if f, err := p.hello(role, run); err != nil || f.kind != kindChallenge || p.proved != (secret != "") {
		t.Fatalf("the store answers a hello with %d %q, %v; proved: %t", f.kind, f.body, err, p.proved)
	}
	if f, err := p.join("", false); err != nil || f.kind != kindWelcome {
		t.Fatalf("the store answers a join with %d %q, %v", f.kind, f.body, err)
	}
	return p
}

// tryResume returns the store's answer to a client that has a token.
func tryResume(t testing.TB, addr, secret string, role byte, run, token string, end bool) frame {
	t.Helper()
	p := dial(t, addr, secret)
	f, err := p.hello(role, run)
	if err == nil && f.kind == kindChallenge {
		f, err = p.join(token, end)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// refusedFor reports whether the frame is a refusal for that reason.
func refusedFor(f frame, reason byte) bool {
	return f.kind == kindRefusal && len(f.body) > 0 && f.body[0] == reason
}

// op is one write of a commit.
type op struct {
	flags      byte
	key, value string
}

// commitBody returns a commit whose guards demand that keys do not exist.
func commitBody(guards []string, ops ...op) []byte {
	b := binary.AppendUvarint([]byte{1}, uint64(len(guards)))
	for _, g := range guards {
		b = append(text(b, g), 0)
	}
	b = binary.AppendUvarint(b, uint64(len(ops)))
	for _, o := range ops {
		b = append(text(text(append(b, o.flags), o.key), o.value), 0) // no TTL
	}
	return b
}

// commit returns the code of the store's reply.
func (p *peer) commit(guards []string, ops ...op) (code byte, err error) {
	if err := p.send(frame{kindCommit, commitBody(guards, ops...)}); err != nil {
		return 0, err
	}
	f, err := readFrame(p)
	switch {
	case err != nil:
		return 0, err
	case f.kind != kindReply || len(f.body) < 2:
		return 0, fmt.Errorf("the store answers a commit with %d %q", f.kind, f.body)
	}
	return f.body[1], nil
}

// watch begins a watch and returns the first batch.
func (p *peer) watch(prefix string) (frame, error) {
	if err := p.send(frame{kindWatch, text([]byte{1}, prefix)}); err != nil {
		return frame{}, err
	}
	return readFrame(p)
}

// keys returns the keys and values below a run, as an observer sees them.
func keys(t testing.TB, addr, secret, run string) map[string]string {
	t.Helper()
	p := enter(t, addr, secret, roleObserver, run)
	defer p.Close()
	f, err := p.watch(run + "/")
	if err != nil || f.kind != kindBatch {
		t.Fatalf("the store answers a watch with %d %q, %v", f.kind, f.body, err)
	}
	return batch(f)
}

// batch returns the keys and values of a batch.
func batch(f frame) map[string]string {
	found := map[string]string{}
	b := f.body
	number := func() uint64 {
		n, size := binary.Uvarint(b)
		b = b[max(size, 0):]
		return n
	}
	number() // the watch
	number() // flags, which fit a byte
	number() // the revision
	for range number() {
		var key, value string
		b = b[1:] // flags
		key, b = cutText(b)
		number()
		value, b = cutText(b)
		found[key] = value
	}
	return found
}

// agents returns how many clients of a run have a session.
func agents(t testing.TB, addr, secret, run string) int {
	t.Helper()
	p := dial(t, addr, secret)
	defer p.Close()
	if f, err := p.hello(roleObserver, run); err != nil || f.kind != kindChallenge {
		t.Fatalf("the store answers a hello with %d %q, %v", f.kind, f.body, err)
	}
	if err := p.send(frame{kindProbe, text(nil, p.proof("agent", nil))}); err != nil {
		t.Fatal(err)
	}
	f, err := readFrame(p)
	if err != nil || f.kind != kindProbeReply {
		t.Fatalf("the store answers a probe with %d %q, %v", f.kind, f.body, err)
	}
	_, rest := cutText(f.body)
	_, rest = cutText(rest)
	n, _ := binary.Uvarint(rest)
	return int(n)
}

// ends reads until the store closes the connection, and returns what it sent.
func ends(t testing.TB, r io.Reader) []byte {
	t.Helper()
	got, err := io.ReadAll(r)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("the store keeps the connection, after %q", got)
	}
	return bytes.Clone(got)
}
