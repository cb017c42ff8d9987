package hosts

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// talker is a process with one end of a connection. It prints each line that arrives, "closed", or the name of an error.
type talker struct {
	t    *testing.T
	in   io.Writer
	out  *bufio.Reader
	name string
}

// talk is the program of both ends. It listens, or connects to its argument, and sends each line of its stdin.
const talk = `
import select, socket, sys
if len(sys.argv) > 1:
    s = socket.create_connection((sys.argv[1], 8000))
else:
    l = socket.create_server(("", 8000))
    print("listening", flush=True)
    s, _ = l.accept()
print("connected", flush=True)
while True:
    for ready in select.select([s, sys.stdin], [], [])[0]:
        if ready is sys.stdin:
            line = sys.stdin.readline()
            if not line:
                sys.exit()
            try:
                s.sendall(line.encode())
            except OSError as e:
                print(type(e).__name__, flush=True)
            continue
        try:
            data = s.recv(100)
        except OSError as e:
            print(type(e).__name__, flush=True)
            sys.exit()
        print(data.decode().strip() or "closed", flush=True)
        if not data:
            sys.exit()
`

func startTalker(t *testing.T, h *Host, args ...string) *talker {
	t.Helper()
	cmd := h.Command(t.Context(), "/usr/bin/python3", append([]string{"-c", talk}, args...)...)
	in, out := testenv.StartWithPipes(t, cmd)
	t.Cleanup(func() { _ = cmd.Wait() })
	return &talker{t: t, in: in, out: bufio.NewReader(out), name: h.Name}
}

func (k *talker) say(text string) {
	k.t.Helper()
	if _, err := io.WriteString(k.in, text+"\n"); err != nil {
		k.t.Fatal(err)
	}
}

// expect waits for the next line.
func (k *talker) expect(want string) {
	k.t.Helper()
	line, err := k.out.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != want {
		k.t.Fatalf("%s saw %q, %v; want %q", k.name, line, err, want)
	}
}

// talkers starts both ends of a connection from the second host to the first.
func talkers(t *testing.T, l *Lab) (server, client *talker) {
	t.Helper()
	server = startTalker(t, l.Hosts[0])
	server.expect("listening")
	client = startTalker(t, l.Hosts[1], l.Hosts[0].Addr)
	server.expect("connected")
	client.expect("connected")
	return server, client
}

func TestDropTo(t *testing.T) {
	l := New(t, 2)
	server, client := talkers(t, l)
	l.Hosts[0].DropTo(l.Hosts[1])
	server.say("lost for now")
	client.say("arrives")
	server.expect("arrives")
	l.Hosts[0].Reach(l.Hosts[1])
	client.expect("lost for now") // TCP has retransmitted it
}

func TestResetAt(t *testing.T) {
	l := New(t, 2)
	server, client := talkers(t, l)
	l.Hosts[1].ResetAt(l.Hosts[0])
	server.say("to the double")
	server.expect("ConnectionResetError")
	l.Hosts[0].Reach(l.Hosts[1])
	// The client's first packet shows it the reset.
	client.say("to nobody")
	client.expect("ConnectionResetError")
}
