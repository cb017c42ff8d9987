package hosts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// output runs a shell command on a host.
func output(t *testing.T, h *Host, script string) string {
	t.Helper()
	cmd := h.Command(t.Context(), "/bin/sh", "-c", script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s on %s: %v\n%s", script, h.Name, err, out)
	}
	return string(out)
}

// listen starts a server on port 8000 of every host and returns when all have answered.
func listen(t *testing.T, l *Lab) {
	t.Helper()
	for _, h := range l.Hosts {
		cmd := h.Command(t.Context(), "/usr/bin/python3", "-m", "http.server", "8000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Wait() })
	}
	for _, h := range l.Hosts {
		probe := h.Command(
			t.Context(),
			"timeout",
			"20",
			"bash",
			"-c",
			"until (>/dev/tcp/127.0.0.1/8000); do sleep 0.02; done",
		)
		if err := probe.Run(); err != nil {
			t.Fatalf("no server on %s: %v", h.Name, err)
		}
	}
}

// reach returns, for each host, the numbers of the hosts that it can connect to, such as "01".
func reach(t *testing.T, l *Lab) []string {
	t.Helper()
	n := len(l.Hosts)
	tries := make([]*exec.Cmd, n*n)
	for i := range tries {
		tries[i] = l.Hosts[i/n].Command(t.Context(), "timeout", "1", "bash", "-c", fmt.Sprintf(">/dev/tcp/node%d/8000", i%n))
		if err := tries[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	reached := make([]string, n)
	for i, try := range tries {
		if try.Wait() == nil {
			reached[i/n] += fmt.Sprint(i % n)
		}
	}
	return reached
}

func TestHostsAreApart(t *testing.T) {
	l := New(t, 2)
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range l.Hosts {
		got := output(
			t,
			h,
			"cat /proc/sys/kernel/hostname; echo $HOSTNAME; getent ahostsv4 $HOSTNAME | head -1; cat /etc/machine-id; ip -brief -4 addr show | tr -s ' '",
		)
		want := fmt.Sprintf(
			"%s\n%[1]s\n%[2]s       STREAM %[1]s\n%032[3]x\nlo UNKNOWN 127.0.0.1/8 \neth0@if",
			h.Name,
			h.Addr,
			0xe1a57c00+i,
		)
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s says\n%swant\n%s...", h.Name, got, want)
		}
	}
	if after, err := os.Hostname(); err != nil || after != machine {
		t.Errorf("the machine's name was %s and is %s (%v)", machine, after, err)
	}
	if hosts, err := os.ReadFile("/etc/hosts"); err != nil || strings.Contains(string(hosts), "10.75.0.") {
		t.Errorf("the machine's hosts file, %v:\n%s", err, hosts)
	}
	// The command is the process that was started, with its code.
	cmd := l.Hosts[1].Command(t.Context(), "/bin/sh", "-c", "echo $$; exit 7")
	out, _ := cmd.Output()
	if diff := cmp.Diff(fmt.Sprintf("%d\n", cmd.Process.Pid), string(out)); diff != "" ||
		cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("exit code %d, want 7; pid (-want +got):\n%s", cmd.ProcessState.ExitCode(), diff)
	}
}

func TestCables(t *testing.T) {
	l := New(t, 4)
	listen(t, l)
	all := []string{"0123", "0123", "0123", "0123"}
	check := func(what string, want ...string) {
		t.Helper()
		diff := cmp.Diff(want, reach(t, l))
		for range 10 { // a busy machine may take longer to connect than reach waits
			if diff == "" {
				return
			}
			diff = cmp.Diff(want, reach(t, l))
		}
		t.Errorf("%s: who reaches whom (-want +got):\n%s", what, diff)
	}
	check("at first", all...)
	l.Hosts[2].Cut()
	check("node2 is cut off", "013", "013", "2", "013")
	l.Hosts[2].Heal()
	check("node2 is back", all...)
	l.Partition(l.Hosts[0], l.Hosts[3])
	check("node0 and node3 are apart", "03", "12", "12", "03")
	l.Hosts[3].Cut()
	check("and node3 is cut off", "0", "12", "12", "3")
	l.Hosts[0].Heal()
	l.Hosts[3].Heal()
	l.Hosts[2].Block(7999, 8000)
	check("node2 has a firewall", "013", "013", "0123", "013")
	l.Hosts[2].Unblock()
	check("in the end", all...)
}

// startProcessTree starts a process on a host, one of whose children is in a session of its own.
func startProcessTree(t *testing.T, h *Host) *exec.Cmd {
	t.Helper()
	cmd := h.Command(t.Context(), "/bin/sh", "-c", "setsid sleep 1000 & sleep 1001 & echo ready; wait")
	out := testenv.StartWithOutput(t, cmd)
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestPowerOff(t *testing.T) {
	l := New(t, 2)
	tree, other := startProcessTree(t, l.Hosts[0]), startProcessTree(t, l.Hosts[1])
	if before := l.Hosts[0].Processes(); len(before) != 3 {
		t.Errorf("before: %v, want three processes", before)
	}
	l.Hosts[0].PowerOff()
	_ = tree.Wait()
	if status := tree.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("the command ended with %v, want SIGKILL", tree.ProcessState)
	}
	if left := l.Hosts[0].Processes(); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
	if there := l.Hosts[1].Processes(); len(there) != 3 {
		t.Errorf("the other host has %v, want three processes", there)
	}
	r := &recorder{TB: t}
	(&Lab{Hosts: l.Hosts, t: r}).NothingLeft(100 * time.Millisecond)
	if len(r.lines) != 3 || !strings.Contains(strings.Join(r.lines, "\n"), "left behind on node1: pid") {
		t.Errorf("NothingLeft said %q, want three processes of node1", r.lines)
	}
	_ = other.Process.Kill()
	_ = other.Wait()
}

// recorder is a testing.TB that records its errors.
type recorder struct {
	testing.TB

	lines []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func TestNothingStays(t *testing.T) {
	var prefix string
	var cmd *exec.Cmd
	t.Run("lab", func(t *testing.T) {
		l := New(t, 1)
		prefix = l.prefix
		cmd = l.Hosts[0].Command(context.WithoutCancel(t.Context()), "sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	})
	if prefix == "" {
		t.Skip("there was no lab")
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the sleep was not killed")
	}
	if names, err := namespaces(prefix); err != nil || len(names) > 0 {
		t.Errorf("namespaces left: %v, %v", names, err)
	}
}

func TestSweep(t *testing.T) {
	testenv.Root(t)
	// Made by a process with this one's id that started at another time.
	name := fmt.Sprintf("%s%d-%s-%s-node0", allPrefix, os.Getpid(), "1", strings.ReplaceAll(t.Name(), "/", ""))
	if err := addNamespace(name); err != nil {
		testenv.Missing(t, "needs network namespaces: %v", err)
	}
	cmd := exec.Command("nsenter", (&Host{namespace: name}).entering(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sweep(t)
	_ = cmd.Wait()
	if names, _ := namespaces(name); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
}

func TestAbandoned(t *testing.T) {
	sameID := fmt.Sprintf("%s%d-1-ABCDEF-switch", allPrefix, os.Getpid()) // of another process that had it
	for name, want := range map[string]bool{
		newPrefix() + "node0":            false,
		sameID:                           true,
		"erlab-999999999-5-ABCDEF-node0": true, // no such process
		"erlab-x-1-ABCDEF-switch":        false,
		"erlab-mine":                     false,
		"else-999999999-5-ABCDEF-node0":  false,
	} {
		if got := abandoned(name); got != want {
			t.Errorf("abandoned(%q) = %v, want %v", name, got, want)
		}
	}
}
