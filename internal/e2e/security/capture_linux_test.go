package security

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
)

// storeWorker writes and reads a key of the worker store by torch's protocol (TCPStore.cpp of torch 2.14).
const storeWorker = `
import os, socket, struct
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
text = lambda b: struct.pack("<Q", len(b)) + b
key = b"key-of-worker-" + os.environ["RANK"].encode()
store.sendall(struct.pack("<BI", 0, 0x3C85F7CE) + b"\1" + text(key) + text(b"value-of-worker") + b"\3" + text(key))
reply = store.makefile("rb").read(8 + len("value-of-worker"))
assert reply[8:] == b"value-of-worker", reply
if os.environ["RANK"] == "0" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    raise SystemExit("an error message")
`

// TestCapture records all packets between two hosts during a whole job: its start, a failure, a restart and its end.
// What agents send is not readable in them. What workers store is readable, because torch's protocol is not encrypted;
// that shows that the recording works.
func TestCapture(t *testing.T) {
	t.Parallel()
	for _, withSecret := range []bool{true, false} {
		t.Run(fmt.Sprintf("secret %t", withSecret), func(t *testing.T) {
			t.Parallel()
			capture(t, withSecret)
		})
	}
}

func capture(t *testing.T, withSecret bool) {
	t.Helper()
	lab := hosts.New(t, 2)
	recording := lab.Hosts[1].Capture()
	secret, secretFile := newSecret(t)
	if !withSecret {
		secretFile = ""
	}
	var agents []*program
	for _, h := range lab.Hosts {
		local := agentCommand(t, lab.Hosts[0].Addr+":29400", secretFile, "")
		args := local.Args[1 : len(local.Args)-3] // all but the shell and its script
		args = append(args, "/usr/bin/python3", "-c", storeWorker)
		cmd := h.Command(t.Context(), local.Path, args...)
		cmd.Env = local.Env
		agents = append(agents, start(t, h.Name, cmd))
	}
	for _, a := range agents {
		if code := a.code(); code != 0 {
			t.Fatalf("%s ended with %d", a.name, code)
		}
	}
	lab.NothingLeft(20 * time.Second)

	var all, ofAgents []byte
	for flow, data := range recording.Flows() {
		all = append(all, data...)
		if flow.From.Port() == 29400 || flow.To.Port() == 29400 {
			ofAgents = append(ofAgents, data...)
		}
	}
	for _, want := range []string{"key-of-worker-", "value-of-worker"} {
		if !bytes.Contains(all, []byte(want)) {
			t.Errorf("%q of the worker store is not in the recording of %d bytes", want, len(all))
		}
	}
	if n := bytes.Count(ofAgents, []byte(preamble)); n < 2 {
		t.Errorf("the recording has %d preambles of the agents' protocol, want those of both sides", n)
	}
	if len(ofAgents) < 4000 {
		t.Errorf("the recording has only %d bytes of the agents", len(ofAgents))
	}
	hidden := []string{
		run, secret, "/agent/", "/answer/", "state/", "watcher/", "phase", "fence", `"host"`,
		"an error message", "node0", "node1", "storeWorker", "elasticrun agent", "assignment", "GlobalWorldSize",
	}
	// Session ids and tokens are crypto/rand.Text.
	if i := regexp.MustCompile(`[A-Z2-7]{26}`).FindIndex(all); i != nil {
		t.Errorf("a session's id or token is in clear: %q", all[i[0]:i[1]])
	}
	for _, text := range hidden {
		for _, form := range forms(text) {
			if i := bytes.Index(all, form); i >= 0 {
				t.Errorf("%q of the agents is in clear: %q", text, all[max(0, i-40):min(len(all), i+80)])
			}
		}
	}
}

// forms returns a text and its usual encodings.
func forms(text string) [][]byte {
	b := []byte(text)
	forms := [][]byte{b, []byte(hex.EncodeToString(b))}
	reversed := slices.Clone(b)
	slices.Reverse(reversed)
	return append(forms, reversed)
}
