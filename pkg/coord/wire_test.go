package coord

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// frames returns one frame of each kind.
func frames() map[string][]byte {
	return map[string][]byte{
		"hello":     hello{secret: true, role: RoleCloser, version: "v1", runID: "run"}.append(nil),
		"challenge": challenge{secret: true, instance: "store", proof: bytes.Repeat([]byte{6}, 32)}.append(nil),
		"join":      join{ttl: 15e9, token: "id.token", end: true, proof: bytes.Repeat([]byte{7}, 32)}.append(nil),
		"welcome": welcome{
			instance: "store", session: "id", token: "id.token", ttl: 15e9, resumed: true,
		}.append(nil),
		"refusal": appendRefusal(nil, ReasonRunID, "another job"),
		"commit": appendCommit(nil, commitRequest{
			request: 3, guards: []Guard{{Key: "leader", Create: 300}},
			ops: []Op{{Key: "a", Value: []byte("v"), Owned: true}, {Key: "b", Delete: true}, {Key: "c", TTL: 1e9}},
		}),
		"keep-alive": appendNumbered(nil, kindKeepAlive, 4),
		"watch":      appendNumbered(nil, kindWatch, 5, "agent/"),
		"unwatch":    appendNumbered(nil, kindUnwatch, 5),
		"end":        appendNumbered(nil, kindEnd, 6),
		"reply":      appendReply(nil, reply{request: 3, revision: 1 << 40, code: codeConflict, message: "key"}),
		"batch": appendBatch(nil, 5, Batch{Resync: true, Revision: 9, Events: []Event{
			{Key: "a", Value: []byte("v"), Create: 9}, {Key: "b", Deleted: true},
		}}, []bool{true, false}),
		"probe request": probeRequest{proof: []byte{7}}.append(nil),
		"probe reply":   probeReply{version: "v1", runID: "run", agents: 3, time: 1 << 60}.append(nil),
		"exit notice":   appendExitNotice(nil, codeLost, "expired"),
	}
}

// decoded decodes a frame's body and encodes it again. It returns nil for a malformed body.
func decoded(k kind, body []byte) (message any, again []byte) {
	var err error
	switch k {
	case kindHello:
		var m hello
		m, err = decodeHello(body)
		message, again = m, m.append(nil)
	case kindChallenge:
		var m challenge
		m, err = decodeChallenge(body)
		message, again = m, m.append(nil)
	case kindJoin:
		var m join
		m, err = decodeJoin(body)
		message, again = m, m.append(nil)
	case kindWelcome:
		var m welcome
		m, err = decodeWelcome(body)
		message, again = m, m.append(nil)
	case kindCommit:
		var m commitRequest
		m, err = decodeCommit(body)
		message, again = m, appendCommit(nil, m)
	case kindReply:
		var m reply
		m, err = decodeReply(body)
		message, again = m, appendReply(nil, m)
	case kindProbe:
		var m probeRequest
		m, err = decodeProbeRequest(body)
		message, again = m, m.append(nil)
	case kindProbeReply:
		var m probeReply
		m, err = decodeProbeReply(body)
		message, again = m, m.append(nil)
	case kindBatch:
		var m batchPart
		m, err = decodePart(body)
		message, again = m, appendPart(nil, m)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, nil
	}
	return message, again
}

// TestFramesRoundTrip decodes encoded frames, both byte by byte and truncated.
func TestFramesRoundTrip(t *testing.T) {
	for name, frame := range frames() {
		t.Run(name, func(t *testing.T) {
			k, body, err := readFrame(iotest.OneByteReader(bytes.NewReader(frame)), maxFrame, make([]byte, frameHeader))
			if err != nil {
				t.Fatal(err)
			}
			if _, again := decoded(k, body); again != nil && !bytes.Equal(frame, again) {
				t.Errorf("% x became % x", frame, again)
			}
			for n := range frame {
				want := io.ErrUnexpectedEOF
				if n == 0 {
					want = io.EOF
				}
				if _, _, err := readFrame(bytes.NewReader(frame[:n]), maxFrame, make([]byte, frameHeader)); !errors.Is(err, want) {
					t.Errorf("cut after %d bytes: %v", n, err)
				}
			}
			for n := range body {
				if m, _ := decoded(k, body[:n]); m != nil {
					t.Errorf("a body cut after %d bytes is %+v", n, m)
				}
			}
		})
	}
	if _, _, err := readFrame(bytes.NewReader(frames()["hello"]), 5, make([]byte, frameHeader)); !errors.Is(err,
		errMalformed) {
		t.Errorf("a frame that is too long: %v", err)
	}
}

// FuzzFrame decodes arbitrary bytes. Nothing may panic, allocate much for a false length, or change when it is encoded
// again.
func FuzzFrame(f *testing.F) {
	for _, frame := range frames() {
		f.Add(frame)
	}
	f.Add([]byte{0, 0x1f, 0xff, 0xff, byte(kindCommit), 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bytes.NewReader(b)
		for {
			k, body, err := readFrame(in, maxFrame, make([]byte, frameHeader))
			if err != nil {
				return
			}
			_, _, _ = decodeRefusal(body)
			m, again := decoded(k, body)
			if m == nil {
				continue
			}
			same, _ := decoded(k, bodyOf(again))
			private := cmp.AllowUnexported(hello{}, challenge{}, join{}, welcome{}, probeRequest{}, probeReply{},
				commitRequest{}, reply{}, batchPart{})
			if diff := cmp.Diff(m, same, private, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("kind %d changes when it is encoded again:\n%s", k, diff)
			}
		}
	})
}

// TestProof checks that a proof is valid only for its secret, connection, side, frames and message.
func TestProof(t *testing.T) {
	of := func(secret string, heard ...string) *transcript {
		p := &transcript{secret: []byte(secret), binding: []byte("this connection")}
		for _, body := range heard {
			p.add([]byte(body))
		}
		return p
	}
	proof := of("secret", "hello", "challenge").proof(sideAgent, []byte("join"))
	for _, tc := range []struct {
		name string
		by   *transcript
		side string
		body string
		want bool
	}{
		{name: "itself", by: of("secret", "hello", "challenge"), side: sideAgent, body: "join", want: true},
		{name: "other secret", by: of("secrets", "hello", "challenge"), side: sideAgent, body: "join"},
		{name: "no secret", by: of("", "hello", "challenge"), side: sideAgent, body: "join"},
		{name: "sent back", by: of("secret", "hello", "challenge"), side: sideStore, body: "join"},
		{name: "another connection", by: of("secret", "hello", "challengf"), side: sideAgent, body: "join"},
		{name: "other bounds", by: of("secret", "hello", "challeng", "e"), side: sideAgent, body: "join"},
		{name: "other bounds of frames", by: of("secret", "hellochallenge"), side: sideAgent, body: "join"},
		{name: "another message", by: of("secret", "hello", "challenge"), side: sideAgent, body: "joim"},
		{
			name: "other keys of TLS", side: sideAgent, body: "join",
			by: func() *transcript {
				p := of("secret", "hello", "challenge")
				p.binding = []byte("another one    ")
				return p
			}(),
		},
	} {
		if got := tc.by.verifies(tc.side, []byte(tc.body), proof); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	if of("secret").verifies(sideAgent, nil, nil) {
		t.Error("an empty proof is accepted without a secret")
	}
}

// TestPrintable checks that a peer's text stays one line and cannot control a terminal.
func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"Zürich 東京": "Zürich 東京", "a\nb\tc": "a?b?c",
		"\x1b[2J\u009bx\x7f": "?[2J?x?", "a\u202eb\u2066c\u2028d": "a?b?c?d", "\xff": "?",
	} {
		if got := printable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
