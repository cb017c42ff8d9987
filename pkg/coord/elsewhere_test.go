package coord

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// memberOptions are the options of the members of a store's group in tests.
func memberOptions() ServerOptions {
	return ServerOptions{InstanceID: "group", Secret: []byte("secret"), RunID: "r"}
}

// startMember starts a member of a group that does not serve. It names the address that named returns.
func startMember(t testing.TB, named func() string) (*Server, string) {
	t.Helper()
	opts := memberOptions()
	opts.Elsewhere = func() (string, bool) { return named(), true }
	return startServer(t, opts)
}

// always returns a function that returns addr.
func always(addr string) func() string { return func() string { return addr } }

// memberDial returns the options of a client of the group.
func memberDial(addr string) DialOptions {
	return DialOptions{Addr: addr, Secret: []byte("secret"), RunID: "r"}
}

// expectElsewhere checks that err says that no serving member was found and that another attempt may help.
func expectElsewhere(t *testing.T, err error, line string) {
	t.Helper()
	checkObstacle(t, err, ObstacleElsewhere, true, line)
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		t.Errorf("%v is a final refusal", refused)
	}
}

// TestElsewhere lets members that do not serve name the serving member. Dial and Probe connect to that member.
func TestElsewhere(t *testing.T) {
	serving, at := startServer(t, memberOptions())
	other, second := startMember(t, always(at))
	_, first := startMember(t, always(second))
	c := dial(t, memberDial(first))
	put(t, c, Op{Key: "k", Owned: true})
	if serving.Sessions() != 1 || c.Addr() != first {
		t.Errorf("%d sessions, client of %s", serving.Sessions(), c.Addr())
	}
	found, err := Probe(t.Context(), memberDial(second))
	if err != nil || found.Agents != 1 {
		t.Errorf("the probe found %+v, %v", found, err)
	}
	if stats := other.Stats(); stats.Accepted != 2 || stats.Refused != 2 || stats.Sessions != 0 {
		t.Errorf("the second member: %+v", stats)
	}
	other.mu.Lock()
	defer other.mu.Unlock()
	if n := len(other.refusals.tallies); n != 0 {
		t.Errorf("%d refusals are logged, want none", n)
	}
}

// TestElsewhereLoops lets members name each other, themselves, or ever more members.
func TestElsewhereLoops(t *testing.T) {
	var back string
	a, first := startMember(t, func() string { return back })
	b, second := startMember(t, always(first))
	back = second
	_, err := Dial(t.Context(), memberDial(first))
	expectElsewhere(t, err, "the job's store at "+second+": another node serves the job's store now: "+first)
	_, err = Probe(t.Context(), memberDial(first))
	expectElsewhere(t, err, second)
	if a.Stats().Accepted != 2 || b.Stats().Accepted != 2 {
		t.Errorf("%d and %d connections, want 2 and 2", a.Stats().Accepted, b.Stats().Accepted)
	}
	back = first
	if _, err = Dial(t.Context(), memberDial(first)); a.Stats().Accepted != 3 {
		t.Errorf("a member that names itself: %d connections, %v", a.Stats().Accepted, err)
	}

	at, all := first, []*Server{}
	for range 2 * maxHops {
		var s *Server
		s, at = startMember(t, always(at))
		all = append(all, s)
	}
	_, err = Dial(t.Context(), memberDial(at))
	expectElsewhere(t, err, "another node serves")
	accepted := 0
	for _, s := range all {
		accepted += int(s.Stats().Accepted)
	}
	if accepted != 1+maxHops {
		t.Errorf("%d connections to a chain of members, want %d", accepted, 1+maxHops)
	}
}

// TestElsewhereOutOfDate lets a member name an address where the store cannot be. Another attempt may help.
func TestElsewhereOutOfDate(t *testing.T) {
	nobody := listen(t, func(net.Conn) {})
	replaced := memberOptions()
	replaced.InstanceID = "another"
	_, another := startServer(t, replaced)
	_, foreign := startServer(t, ServerOptions{Secret: []byte("another")})
	http := httpAddr(t)
	for name, tc := range map[string]struct{ at, line string }{
		"no address":      {"", "the nodes that keep the job's store are choosing which one serves it"},
		"malformed":       {"elsewhere", "the nodes that keep the job's store are choosing which one serves it"},
		"another job":     {foreign, "another node serves the job's store now: " + foreign + ", but: the store at"},
		"another group":   {another, "another node serves the job's store now: " + another + ", but: "},
		"another program": {http, "another node serves the job's store now: " + http + ", but: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, addr := startMember(t, always(tc.at))
			_, err := Dial(t.Context(), memberDial(addr))
			expectElsewhere(t, err, "the job's store at "+addr+": "+tc.line)
		})
	}
	_, addr := startMember(t, always(nobody))
	_, err := Dial(t.Context(), memberDial(addr))
	checkObstacle(t, err, ObstacleClosed, true, "the job's store at "+nobody)
}

// httpAddr returns the address of a server that answers as HTTP does.
func httpAddr(t *testing.T) string {
	t.Helper()
	return listen(t, func(nc net.Conn) {
		io.WriteString(nc, "HTTP/1.1 400 Bad Request\r\n\r\n")
		nc.Read(make([]byte, 99))
	})
}

// TestElsewhereIsAskedLate checks that a client that does not belong to the store does not learn which member serves.
func TestElsewhereIsAskedLate(t *testing.T) {
	_, addr := startMember(t, func() string {
		t.Error("the group was asked")
		return ""
	})
	for _, opts := range []DialOptions{
		{Addr: addr, Secret: []byte("another"), RunID: "r"},
		{Addr: addr, RunID: "r"},
		{Addr: addr, Secret: []byte("secret"), RunID: "another"},
	} {
		for _, err := range []error{
			func() error { _, err := Dial(t.Context(), opts); return err }(),
			EndSession(t.Context(), opts, "id.token"),
		} {
			if _, ok := errors.AsType[*RefusedError](err); !ok {
				t.Errorf("%v, want a refusal", err)
			}
		}
	}
}

// TestElsewhereDoesNotWait checks that a store that cannot confirm its answers refuses clients, because it does not
// serve now.
func TestElsewhereDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := memberOptions()
		opts.Elsewhere = func() (string, bool) { return "", true }
		s, k := NewServer(opts), newSharedKeeper()
		s.keepJournal(k)
		way := &pipeNetwork{server: s}
		dialOpts := memberDial("pipe")
		dialOpts.Conn = way.dial
		began := time.Now()
		_, err := Dial(t.Context(), dialOpts)
		expectElsewhere(t, err, leaderlessMessage)
		_, err = Probe(t.Context(), dialOpts)
		expectElsewhere(t, err, leaderlessMessage)
		expectElsewhere(t, EndSession(t.Context(), dialOpts, "id.token"), leaderlessMessage)
		if took := time.Since(began); took != 0 {
			t.Errorf("the refusals took %v", took)
		}
		stop := k.answerAll()
		defer stop()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAdapt checks which options are used at an address that a member has named.
func TestAdapt(t *testing.T) {
	_, at := startServer(t, memberOptions())
	_, first := startMember(t, always(at))
	dialed := make(chan string, 2)
	connect := func(addr string) func(context.Context) (net.Conn, error) {
		return func(ctx context.Context) (net.Conn, error) {
			dialed <- addr
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	opts := memberDial(first)
	opts.Conn = connect(first)
	opts.Adapt = func(other *DialOptions) {
		if other.Addr != at || other.Conn != nil || other.RunID != "r" {
			t.Errorf("adapting %+v", other)
		}
		other.Conn = connect(at)
	}
	dial(t, opts)
	for _, want := range []string{first, at} {
		if got := next(t, dialed, "an attempt"); got != want {
			t.Errorf("dialed %s, want %s", got, want)
		}
	}
}

func TestValidAddr(t *testing.T) {
	for addr, want := range map[string]bool{
		"node0:29400": true, "10.0.0.1:1": true, "[2001:db8::1]:65535": true, "[fe80::1%eth0]:29400": true,
		"": false, "node0": false, ":29400": false, "node0:": false, "node0:0": false, "node0:65536": false,
		"node0:http": false, "node0:+1": false, "node 0:29400": false, "node0\n:29400": false, "a:b:1": false,
		"\u202enode0:29400": false, "\xff:29400": false, strings.Repeat("n", 256) + ":29400": false,
	} {
		if got := validAddr(addr); got != want {
			t.Errorf("%q: %t, want %t", addr, got, want)
		}
		if got := addrInMessage(elsewhereRefusal(addr).message); want != (got == addr && addr != "") {
			t.Errorf("%q arrives as %q", addr, got)
		}
	}
	if got := addrInMessage("the store is closing: node0:29400"); got != "" {
		t.Errorf("another message names %q", got)
	}
}
