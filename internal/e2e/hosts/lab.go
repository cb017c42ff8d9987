package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// Lab is a switch and the hosts that are connected to it.
type Lab struct {
	Hosts []*Host

	t       testing.TB
	prefix  string // prefix of the namespaces' names
	doubled bool   // addDouble has been called
}

// The switch is a namespace in which host i is connected to portI. It has two bridges: Partition moves ports from the
// main bridge to the side bridge.
const (
	switchName = "switch"
	mainBridge = "main"
	sideBridge = "side"
)

// removeBound is far longer than the kernel needs to end killed processes.
const removeBound = 20 * time.Second

// New makes a lab of n hosts, node0 at 10.75.0.1, node1 at 10.75.0.2 and so on. Labs cannot reach each other, so all
// labs use these addresses. The test's cleanup kills everything on the hosts.
func New(t testing.TB, n int) *Lab {
	t.Helper()
	testenv.Root(t)
	if err := tools(); err != nil {
		testenv.Missing(t, "needs several hosts: %v", err)
	}
	sweep(t)
	l := &Lab{t: t, prefix: newPrefix()}
	t.Cleanup(l.remove)
	if err := addNamespace(l.prefix + switchName); err != nil {
		testenv.Missing(t, "needs network namespaces: %v", err)
	}
	files := t.TempDir()
	for i := range n {
		h := &Host{
			Name: fmt.Sprintf("node%d", i), Addr: fmt.Sprintf("10.75.0.%d", i+1),
			lab: l, port: fmt.Sprintf("port%d", i), namespace: fmt.Sprintf("%snode%d", l.prefix, i),
		}
		h.files = filepath.Join(files, h.Name)
		if err := addNamespace(h.namespace); err != nil {
			t.Fatal(err)
		}
		l.Hosts = append(l.Hosts, h)
	}
	l.connect()
	for i, h := range l.Hosts {
		if err := h.writeFiles(i, l.Hosts); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// connect makes the bridges and connects each host to the main bridge.
func (l *Lab) connect() {
	var lines []string
	for _, bridge := range []string{mainBridge, sideBridge} {
		lines = append(lines, "link add "+bridge+" type bridge", "link set "+bridge+" up")
	}
	for _, h := range l.Hosts {
		lines = append(lines,
			fmt.Sprintf("link add %s type veth peer name eth0 netns %s", h.port, h.namespace),
			fmt.Sprintf("link set %s master %s up", h.port, mainBridge))
	}
	l.ip(l.prefix+switchName, lines...)
	for _, h := range l.Hosts {
		l.ip(h.namespace, "link set lo up", "addr add "+h.Addr+"/24 dev eth0", "link set eth0 up")
	}
}

// Partition moves hosts to the side bridge: they reach each other, and the other hosts reach each other. Their links
// stay up. Heal moves a host back.
func (l *Lab) Partition(hosts ...*Host) {
	l.t.Helper()
	var lines []string
	for _, h := range hosts {
		lines = append(lines, "link set "+h.port+" master "+sideBridge)
	}
	l.ip(l.prefix+switchName, lines...)
}

// NothingLeft fails the test if processes are still running on a host after bound. A killed process needs a moment to
// end.
func (l *Lab) NothingLeft(bound time.Duration) {
	l.t.Helper()
	for _, h := range l.Hosts {
		for _, p := range h.awaitEmpty(bound, false) {
			l.t.Errorf("left behind on %s: %s", h.Name, p)
		}
	}
}

// remove kills everything on the hosts and deletes the namespaces. An error fails the test.
func (l *Lab) remove() {
	for _, h := range l.Hosts {
		for _, p := range h.awaitEmpty(removeBound, true) {
			l.t.Errorf("cannot kill on %s: %s", h.Name, p)
		}
	}
	names, err := namespaces(l.prefix)
	if err != nil {
		l.t.Error(err)
	}
	for _, name := range names {
		if err := deleteNamespace(name); err != nil {
			l.t.Error(err)
		}
	}
}

// ip runs lines of ip(8) in a namespace.
func (l *Lab) ip(namespace string, lines ...string) {
	l.t.Helper()
	if _, err := run(strings.Join(lines, "\n"), "ip", "-netns", namespace, "-batch", "-"); err != nil {
		l.t.Fatal(err)
	}
}

// writeFiles writes the host's own /etc/hosts, hostname and machine-id.
func (h *Host) writeFiles(number int, all []*Host) error {
	hosts := []string{"127.0.0.1 localhost", "::1 localhost"}
	for _, other := range all {
		hosts = append(hosts, other.Addr+" "+other.Name)
	}
	if err := os.Mkdir(h.files, 0o755); err != nil {
		return err
	}
	return h.write(map[string]string{
		"hosts":      strings.Join(hosts, "\n") + "\n",
		"hostname":   h.Name + "\n",
		"machine-id": fmt.Sprintf("%032x\n", 0xe1a57c00+number),
	})
}

// write replaces files in the host's /etc. A name that the machine's /etc lacks has no effect.
func (h *Host) write(etc map[string]string) error {
	for name, text := range etc {
		if err := os.WriteFile(filepath.Join(h.files, name), []byte(text), 0o644); err != nil { //nolint:gosec // as in /etc
			return err
		}
	}
	return nil
}

// AddNames adds lines to the hosts file of each host, such as "10.75.0.1 alias".
func (l *Lab) AddNames(lines ...string) {
	l.t.Helper()
	for _, h := range l.Hosts {
		name := filepath.Join(h.files, "hosts")
		text, err := os.ReadFile(name)
		if err != nil {
			l.t.Fatal(err)
		}
		text = append(text, strings.Join(lines, "\n")+"\n"...)
		if err := h.write(map[string]string{"hosts": string(text)}); err != nil {
			l.t.Fatal(err)
		}
	}
}
