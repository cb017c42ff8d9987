package rpc_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/rpc"
)

// storeOn serves a store on a host until the end of the test and returns its address.
func storeOn(t *testing.T, host *hosts.Host) string {
	t.Helper()
	addr := host.Addr + ":7000"
	cmd := host.Command(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+roleStore, storeVariable+"="+addr, quickEnd)
	cmd.Stderr = os.Stderr
	out := testenv.StartWithOutput(t, cmd)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	line := make([]byte, len("serving\n"))
	if _, err := out.Read(line); err != nil || string(line) != "serving\n" {
		t.Fatalf("the store printed %q, %v", line, err)
	}
	return addr
}

// memberOn starts a member on a host.
func memberOn(t *testing.T, host *hosts.Host, name, store string, vars ...string) *memberProcess {
	t.Helper()
	return newMemberProcess(t, host.Command(t.Context(), os.Args[0]), testenv.Mark(),
		memberConfig{Name: name, Store: store}, vars...)
}

// sees checks the names in the view of a member.
func (r *memberProcess) sees(when string, want ...string) {
	r.t.Helper()
	var got []string
	for _, w := range r.request("view").View {
		got = append(got, w.Name)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		r.t.Errorf("%s %s sees %v, want %v", when, r.Name, got, want)
	}
}

// Two members run on two hosts, with the store on a third. If only the link between the members is cut, calls fail and
// both stay. If a host is cut off from all others, the other member evicts it, and never the other way round.
func TestCutLink(t *testing.T) {
	if !testenv.Whole(t) {
		t.Skip("takes half a minute: part of make soak")
	}
	lab := hosts.New(t, 3)
	store := storeOn(t, lab.Hosts[0])
	a := memberOn(t, lab.Hosts[1], "a", store)
	a.receive()
	b := memberOn(t, lab.Hosts[2], "b", store)
	b.receive()
	route := func(verb string) {
		ip := lab.Hosts[2].Command(t.Context(), "ip", "route", verb, "blackhole", lab.Hosts[1].Addr+"/32")
		if out, err := ip.CombinedOutput(); err != nil {
			t.Fatalf("ip route %s: %v\n%s", verb, err, out)
		}
	}
	route("add")
	begun := time.Now()
	for _, r := range []*memberProcess{a, b} {
		other := map[string]string{"a": "b", "b": "a"}[r.Name]
		if report := r.request("call " + other); !report.is(rpc.ErrConnection, rpc.ErrTimeout) {
			t.Errorf("a call from %s over the cut link: %+v", r.Name, report)
		}
		t.Logf("%s noticed the cut after %v", r.Name, time.Since(begun).Round(time.Millisecond))
	}
	// This is longer than an eviction takes, 11 s.
	<-time.After(time.Until(begun.Add(20 * time.Second)))
	a.sees("with the link cut", "a", "b")
	b.sees("with the link cut", "a", "b")
	route("del")
	for deadline := time.Now().Add(testTimeout); ; {
		if report := a.request("call b"); report.Err == "" {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the link is restored, but: %+v", report)
		}
	}

	begun = time.Now()
	lab.Hosts[2].Cut()
	a.send("lacks b")
	a.receive()
	t.Logf("the cut host was evicted after %v", time.Since(begun).Round(time.Millisecond))
	a.sees("after the eviction", "a")
	b.send("evicted")
	lab.Hosts[2].Heal()
	if report := b.receive(); !report.is(rpc.ErrEvicted) {
		t.Errorf("a call of the evicted member: %+v", report)
	}
	a.sees("at the end", "a")
	b.end()
	a.request("leave")
	a.end()
}

// A member that publishes a loopback address to another host is refused.
func TestLoopbackAddressOnTwoHosts(t *testing.T) {
	lab := hosts.New(t, 2)
	store := storeOn(t, lab.Hosts[0])
	a := memberOn(t, lab.Hosts[0], "a", store)
	a.receive()
	b := memberOn(t, lab.Hosts[1], "b", store, "ELASTICRUN_RPC_ADDR=127.0.0.1")
	b.in.Close()
	_ = b.cmd.Wait()
	const want = `worker "b" on host node1 listens on 127.0.0.1:`
	if stderr := b.errs.String(); b.cmd.ProcessState.ExitCode() != 1 ||
		strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want) {
		t.Errorf("%v, stderr %q; want %q", b.cmd.ProcessState, stderr, want)
	}
	a.sees("after the other member was refused", "a")
	a.request("leave")
	a.end()
}
