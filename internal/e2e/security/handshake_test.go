package security

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestReplay repeats what agents have sent before: the bytes of whole connections, and the frames inside TLS.
func TestReplay(t *testing.T) {
	t.Parallel()
	secret, secretFile := newSecret(t)
	_, addr := startStore(t, secretFile)
	between := byteRelay(t, addr, nil)
	a := startAgent(t, "agent 0", between.addr, secretFile, "exit 0")
	b := startAgent(t, "agent 1", between.addr, secretFile, "exit 0")
	if a.code() != 0 || b.code() != 0 {
		t.Fatal("the job failed")
	}
	before := keys(t, addr, secret, run)

	recorded := 0
	for _, c := range between.all() {
		sent := c.sent()
		if len(sent) < 1000 {
			continue // the agent had no session on it
		}
		recorded++
		nc := connect(t, addr)
		if _, err := nc.Write(sent); err != nil {
			continue // the store had closed it
		}
		// A server answers a ClientHello as often as it comes: preamble, ServerHello and what follows it.
		if got := ends(t, nc); len(got) > len(preamble)+2000 {
			t.Errorf("the store answers %d replayed bytes with %d", len(sent), len(got))
		}
	}
	if recorded < 2 {
		t.Fatalf("recorded %d sessions, want one of each agent", recorded)
	}

	first := enter(t, addr, secret, roleAgent, run)
	for _, end := range []bool{false, true} { // a new connection, or the proof of a resumed session as its end
		again := dial(t, addr, secret)
		if f, err := again.hello(roleAgent, run); err != nil || f.kind != kindChallenge {
			t.Fatalf("the store answers a hello with %d %q, %v", f.kind, f.body, err)
		}
		replayed := first.joined
		if end {
			replayed.body = bytes.Clone(replayed.body)
			_, rest := cutText(replayed.body[1:]) // after the TTL; rest begins with the flags
			rest[0] = 1
		}
		if err := again.send(replayed); err != nil {
			t.Fatal(err)
		}
		if f, err := readFrame(again); err != nil || !refusedFor(f, reasonSecret) {
			t.Errorf("the store answers a replayed join with %d %q, %v", f.kind, f.body, err)
		}
	}
	if n := agents(t, addr, secret, run); n != 1 {
		t.Errorf("the store has %d sessions, want only that of the peer itself", n)
	}
	if after := keys(t, addr, secret, run); len(after) != len(before) {
		t.Errorf("keys before %v, after %v", before, after)
	}
}

// TestFlippedBytes changes one byte of a connection, at every few bytes of the handshake in both directions and of a
// commit after it. No changed byte may be accepted.
func TestFlippedBytes(t *testing.T) {
	t.Parallel()
	secret, secretFile := newSecret(t)
	_, addr := startStore(t, secretFile)
	undisturbed := byteRelay(t, addr, nil)
	if !writes(t, undisturbed.addr, secret, peerTimeout) {
		t.Fatal("a peer through the relay cannot write")
	}
	c := undisturbed.all()[0]
	lengths := map[bool]int{true: len(c.sent()), false: len(c.received())}
	step := max(1, (lengths[true]+lengths[false])/testenv.Repeat(t, 60, 3000))
	var all sync.WaitGroup // all at once: after some changes a side waits for bytes that do not come
	for toStore, length := range lengths {
		for at := range length {
			if at >= len(preamble) && at%step != 0 {
				continue
			}
			between := byteRelay(t, addr, func(direction bool) func([]byte) {
				passed := 0
				return func(b []byte) {
					if i := at - passed; direction == toStore && i >= 0 && i < len(b) {
						b[i] ^= 0x40
					}
					passed += len(b)
				}
			})
			all.Go(func() {
				if writes(t, between.addr, secret, 3*time.Second) {
					t.Errorf("to the store %t, byte %d of %d changed: the write was done", toStore, at, length)
				}
			})
		}
	}
	all.Wait()
}

// writes reports whether a peer gets a session and writes a key within a timeout.
func writes(t *testing.T, addr, secret string, timeout time.Duration) bool {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return false
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(timeout))
	p, err := newPeer(nc, secret)
	if err != nil {
		return false
	}
	if _, err = p.hello(roleAgent, run); err != nil || !p.proved {
		return false
	}
	if f, err := p.join("", false); err != nil || f.kind != kindWelcome {
		return false
	}
	code, err := p.commit(nil, op{flagOwned, run + "/agent/" + p.id, "value"})
	return err == nil && code == codeDone
}

// TestWrongRun has a peer with the secret that names another run than that of an agent's store, and run ids that could
// reach into the keys of another run.
func TestWrongRun(t *testing.T) {
	t.Parallel()
	secret, secretFile := newSecret(t)
	j := hostedJob(t, secretFile, "exit 0")
	for _, other := range []string{"other", run + "2", run[:3], run + "/agent", run + "/state/job", "a\nb", strings.Repeat("a", 600)} {
		for role := byte(roleAgent); role <= roleCloser+1; role++ {
			p := dial(t, j.addr, secret)
			f, err := p.hello(role, other)
			if err == nil && f.kind == kindChallenge {
				f, err = p.join("", false)
			}
			// Observers of another run get a session that reads nothing of this one.
			mayEnter := (role == roleObserver || role == roleCloser) && !strings.ContainsAny(other, "/\n") && len(other) < 500
			if err != nil || mayEnter != (f.kind == kindWelcome) || !mayEnter && !refusedFor(f, reasonRunID) {
				t.Errorf("role %d of run %q: %d %q, %v", role, other, f.kind, f.body, err)
				continue
			}
			if mayEnter {
				if f, err := p.watch(run + "/"); err == nil {
					t.Errorf("role %d of run %q watches another run: %d %q", role, other, f.kind, f.body)
				}
			}
			_ = p.Close()
		}
	}
	j.finish(t)
}

// TestStolenSecret has a peer that knows an old secret and the token of a session. The store was restarted with another
// secret and the same data.
func TestStolenSecret(t *testing.T) {
	t.Parallel()
	stolen, oldFile := newSecret(t)
	secret, newFile := newSecret(t)
	data := "--data-dir=" + t.TempDir()
	store, addr := startStore(t, oldFile, data)
	victim := enter(t, addr, stolen, roleAgent, run)
	key := run + "/agent/" + victim.id
	if code, err := victim.commit(nil, op{flagOwned, key, "value"}); code != codeDone || err != nil {
		t.Fatalf("the store answers a commit with %d, %v", code, err)
	}
	store.stop()
	_, addr = startStore(t, newFile, data)
	for _, end := range []bool{false, true} {
		for _, token := range []string{"", victim.token} {
			if f := tryResume(t, addr, stolen, roleAgent, run, token, end); !refusedFor(f, reasonSecret) {
				t.Errorf("token %q, end %t: the store answers the old secret with %d %q", token, end, f.kind, f.body)
			}
		}
	}
	if f := tryResume(t, addr, secret, roleAgent, run, victim.token, false); f.kind != kindWelcome {
		t.Errorf("the session's owner with the new secret gets %d %q", f.kind, f.body)
	}
	if got := keys(t, addr, secret, run); got[key] != "value" {
		t.Errorf("keys %v, want %s", got, key)
	}
}

// TestDowngradeOfStore asks a store for less than TLS 1.3 with the secret. It learns nothing and changes nothing.
func TestDowngradeOfStore(t *testing.T) {
	t.Parallel()
	secret, secretFile := newSecret(t)
	_, addr := startStore(t, secretFile)
	hello := string(frame{kindHello, helloBody(true, roleAgent, run)}.bytes())
	for _, version := range []string{"\x00\x01", "\x00\x02", "\x00\x04", "\xff\xff"} {
		nc := connect(t, addr)
		if _, err := io.WriteString(nc, preamble[:8]+version+hello); err != nil {
			t.Fatal(err)
		}
		got := ends(t, nc)
		r := bytes.NewReader(bytes.TrimPrefix(got, []byte(preamble)))
		if f, err := readFrame(r); err != nil || !refusedFor(f, reasonProtocol) || r.Len() != 0 {
			t.Errorf("version %q: the store sends %q, want its preamble and a refusal", version, got)
		}
	}
	nc := connect(t, addr)
	if _, err := io.WriteString(nc, preamble+hello); err != nil { // the right version, but frames in place of TLS
		t.Fatal(err)
	}
	if got := ends(t, nc); bytes.Contains(got, []byte{kindChallenge}) && !bytes.HasPrefix(got, []byte(preamble+"\x15")) {
		t.Errorf("a hello without TLS: the store sends %q, want its preamble and an alert", got)
	}
	for name, config := range map[string]*tls.Config{
		"TLS 1.2": {MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true},
	} {
		nc := connect(t, addr)
		if _, err := io.WriteString(nc, preamble); err != nil {
			t.Fatal(err)
		}
		if err := tls.Client(&afterPreamble{Conn: nc}, config).Handshake(); err == nil {
			t.Errorf("the store speaks %s", name)
		}
	}
	p := dial(t, addr, "") // no secret, and the claim to have one
	if err := p.say(frame{kindHello, helloBody(true, roleAgent, run)}); err != nil {
		t.Fatal(err)
	}
	if f, err := readFrame(p); err != nil || f.kind != kindChallenge {
		t.Fatalf("the store answers a hello with %d %q, %v", f.kind, f.body, err)
	}
	if f, err := p.join("", false); err != nil || !refusedFor(f, reasonSecret) {
		t.Errorf("the store answers an empty proof with %d %q, %v", f.kind, f.body, err)
	}
	p = dial(t, addr, "")
	if f, err := p.hello(roleAgent, run); err != nil || !refusedFor(f, reasonSecret) {
		t.Errorf("the store answers a client without a secret with %d %q, %v", f.kind, f.body, err)
	}
	if n := agents(t, addr, secret, run); n != 0 {
		t.Errorf("the store has %d sessions", n)
	}
}
