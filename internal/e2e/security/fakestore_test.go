package security

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// challengeBody returns the body of a challenge.
func challengeBody(hasSecret bool, proof string) []byte {
	flags := byte(0)
	if hasSecret {
		flags = 1
	}
	return text(text([]byte{flags}, "fake store"), proof)
}

// fakeStore pretends to be a store. It answers each hello with answer, and records what the client sends inside TLS.
func fakeStore(t testing.TB, answer func(hello frame) []byte) *wire {
	t.Helper()
	config := serverTLS(t)
	return listen(t, func(nc net.Conn, c *call) {
		inside, err := answerTLS(nc, config)
		if err != nil {
			return
		}
		hello, err := readFrame(inside)
		if err != nil {
			return
		}
		c.record(true, hello.bytes())
		if _, err := inside.Write(answer(hello)); err != nil {
			return
		}
		pump(io.Discard, inside, func(b []byte) { c.record(true, b) }, nil)
	})
}

// TestFakeStore has a store that does not know the secret. Agents with different secrets must send it the same bytes,
// so that it cannot test guesses of a secret against them.
func TestFakeStore(t *testing.T) {
	t.Parallel()
	mirror := func(hello frame) []byte { // the agent's own frame as the store's
		return frame{kindChallenge, hello.body}.bytes()
	}
	for name, answer := range map[string]func(frame) []byte{
		"no proof":     func(frame) []byte { return frame{kindChallenge, challengeBody(true, "")}.bytes() },
		"random proof": func(frame) []byte { return frame{kindChallenge, challengeBody(true, rand.Text()+"012345")}.bytes() },
		"no secret":    func(frame) []byte { return frame{kindChallenge, challengeBody(false, "")}.bytes() },
		"mirror":       mirror,
		"welcome": func(frame) []byte {
			f := frame{kindWelcome, append(text(text(text(nil, "fake store"), "session"), "token"), 1, 0)}
			return append(frame{kindChallenge, challengeBody(true, "")}.bytes(), f.bytes()...)
		},
		"welcome without a challenge": func(frame) []byte {
			return frame{kindWelcome, append(text(text(text(nil, "fake store"), "session"), "token"), 1, 0)}.bytes()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secrets, fakes, agents := [2]string{}, [2]*wire{}, [2]*program{}
			for i := range agents {
				secret, secretFile := newSecret(t)
				secrets[i], fakes[i] = secret, fakeStore(t, answer)
				agents[i] = startAgent(t, "agent", fakes[i].addr, secretFile, "exit 0", "--rdzv-conf=join_timeout=5")
			}
			var sent [2][]byte // the most that the agents of the two secrets have sent on one connection
			for i, agent := range agents {
				if code := agent.code(); code == 0 {
					t.Error("the agent ended with 0")
				}
				calls := fakes[i].all()
				if len(calls) == 0 {
					t.Fatal("the agent did not connect")
				}
				for _, c := range calls {
					got := c.sent()
					// A connection that ended early has nothing inside TLS.
					if k := kinds(got); len(k) > 0 && k[0] != kindHello || bytes.ContainsAny(k, string([]byte{kindJoin, kindProbe})) {
						t.Errorf("the fake store got frames %v", k)
					}
					if bytes.Contains(got, []byte(secrets[i])) {
						t.Error("the agent sends its secret")
					}
				}
				for _, c := range calls { // on a busy machine some end before all has come
					if got := c.sent(); len(got) > len(sent[i]) {
						sent[i] = got
					}
				}
			}
			if len(sent[0]) == 0 {
				t.Error("the fake store got no hello")
			}
			if !bytes.Equal(sent[0], sent[1]) {
				t.Errorf("what an agent sends depends on its secret:\n%q\n%q", sent[0], sent[1])
			}
		})
	}
}

// refusalBytes returns what a store of any version sends in the clear: its preamble and a refusal.
func refusalBytes(version uint16, reason byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte(preamble[:8]), version)
	return append(b, frame{kindRefusal, text([]byte{reason}, "forged")}.bytes()...)
}

// forger is a relay to a store. When attack is closed it breaks all connections, and answers one new connection with
// each of the forged answers before it forwards again. rest returns how many answers are left.
func forger(t testing.TB, addr string, attack chan struct{}, forged [][]byte) (w *wire, rest func() int) {
	t.Helper()
	answers := make(chan []byte, len(forged))
	for _, f := range forged {
		answers <- f
	}
	w = listen(t, func(client net.Conn, c *call) {
		store, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer store.Close()
		over := make(chan struct{})
		defer close(over)
		select {
		case <-attack:
			select {
			case f := <-answers:
				answerOnce(client, f)
				return
			default: // all have been sent
			}
		default:
			go func() {
				select {
				case <-attack:
				case <-over:
				}
				_ = client.Close()
				_ = store.Close()
			}()
		}
		forward(client, store, c, nil, nil)
	})
	return w, func() int { return len(answers) }
}

// answerOnce sends an answer after the beginning of TLS, and waits until the client leaves.
func answerOnce(client net.Conn, answer []byte) {
	_, _ = io.ReadFull(client, make([]byte, len(preamble)+5))
	_, _ = client.Write(answer)
	if tcp, ok := client.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // a reset would destroy what was sent
	}
	_, _ = io.Copy(io.Discard, client)
}

// TestForgedRefusals has an attacker between a running job and its store. The attacker breaks the connection of an
// agent and answers the agent's next attempts in the clear: with refusals of every reason, and with the exit notice of
// a store that has ended. The agent has a secret, so it believes none of these answers. When the path is free again, it
// resumes its session and the job succeeds without a restart. An agent that is just starting retries for a few seconds.
func TestForgedRefusals(t *testing.T) {
	t.Parallel()
	_, secretFile := newSecret(t)
	_, addr := startStore(t, secretFile)
	var forged [][]byte
	for _, version := range []uint16{2, 3, 4} {
		for reason := byte(0); reason <= 8; reason++ {
			forged = append(forged, refusalBytes(version, reason))
		}
	}
	forged = append(forged,
		append([]byte(preamble), frame{kindExitNotice, text([]byte{3}, "the store has ended")}.bytes()...),
		[]byte("HTTP/1.1 200 OK\r\n\r\n"), []byte("\x15\x03\x03\x00\x02\x02\x28"), nil)

	attack := make(chan struct{}) // closed when the attack begins
	between, rest := forger(t, addr, attack, forged)
	file := t.TempDir() + "/go"
	script := "echo worker began; " + until(file)
	// The keep-alive time is long, so that the session outlives the attack.
	a := startAgent(t, "agent 0", between.addr, secretFile, script, "--rdzv-conf=keep_alive_interval=20")
	// The other agent is attacked from its start on: at its port may have been another job's store.
	always := make(chan struct{})
	close(always)
	other, _ := forger(t, addr, always, [][]byte{
		refusalBytes(2, reasonProtocol), refusalBytes(3, reasonSecret), []byte("HTTP/1.1 200 OK\r\n\r\n"),
	})
	b := startAgent(t, "agent 1", other.addr, secretFile, script, "--rdzv-conf=keep_alive_interval=20")
	a.await("worker began")
	b.await("worker began")
	close(attack)
	testenv.Await(t, "all forged answers to be sent", bound, func() bool { return rest() == 0 })
	create(t, file)
	for _, p := range []*program{a, b} {
		if code := p.code(); code != 0 {
			t.Errorf("%s ended with %d", p.name, code)
		}
		if n := strings.Count(p.text(), "worker began"); n != 1 {
			t.Errorf("%s has started its worker %d times", p.name, n)
		}
	}
}
