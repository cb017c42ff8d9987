package backends

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/elasticrun/elasticrun/pkg/coord/etcd"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// params returns the parameters of a job of two to four nodes.
func params(backend, endpoint, conf string) rdzv.Parameters {
	p := rdzv.Parameters{
		Backend: backend, Endpoint: endpoint, RunID: "job7", MinNodes: 2, MaxNodes: 4, Config: map[string]string{},
	}
	for pair := range strings.FieldsSeq(conf) {
		key, value, _ := strings.Cut(pair, "=")
		p.Config[key] = value
	}
	return p
}

// Every parameter and option reaches the handler.
func TestHandlerOptions(t *testing.T) {
	o := Options{Job: rounds.Job{MaxRestarts: 3, Version: "v"}, Secret: []byte("s"), Command: "c"}
	read := func(p rdzv.Parameters) elastic.Options {
		t.Helper()
		in, err := o.read(p)
		if err != nil {
			t.Fatal(err)
		}
		return o.handler(in, &machine.Identity{Host: "h", Name: "n"})
	}
	got := read(params("c10d", "node0", "join_timeout=7 last_call_timeout=8 close_timeout=9 keep_alive_interval=2 "+
		"read_timeout=1 join_settle=0.25 result_ttl=10 is_host=yes rank=1"))
	want := rounds.Job{
		Version: "v", Min: 2, Max: 4, MaxRestarts: 3, JoinTimeout: 7 * time.Second, LastCall: 8 * time.Second,
		TTL: 6 * time.Second, Rejoin: 40 * time.Second, JoinSettle: time.Second / 4, ResultTTL: 10 * time.Second, Grow: "now",
	}
	if diff := cmp.Diff(want, got.Job); diff != "" {
		t.Errorf("the job (-want +got):\n%s", diff)
	}
	if got.Timeout != time.Second || got.KeepAlive != 1500*time.Millisecond || got.CloseTimeout != 9*time.Second {
		t.Errorf("timeouts %v, %v, %v", got.Timeout, got.KeepAlive, got.CloseTimeout)
	}
	if diff := cmp.Diff(rounds.Node{Host: "h", Identity: "n", Hint: 1, Command: "c"}, got.Node); diff != "" {
		t.Errorf("the node (-want +got):\n%s", diff)
	}
	a := got.Access.(*elastic.C10d)
	if a.Host != "node0" || !slices.Equal(a.Ports, []int{29400}) || !*a.IsHost || a.SingleNode || a.TTL != 6*time.Second ||
		a.Linger != 300*time.Second || string(a.Secret) != "s" || a.RunID != "job7" || a.Version != "v" {
		t.Errorf("c10d: %+v", a)
	}

	got = read(params("static", "node0:5", "rank=3"))
	a = got.Access.(*elastic.C10d)
	if !got.Job.Static || got.Job.Min != 4 || got.Job.JoinTimeout != 900*time.Second || a.Ports[0] != 5 || *a.IsHost ||
		!got.Stores.Fixed || !got.Stores.Shared {
		t.Errorf("static: %+v, %+v, %+v", got.Job, a, got.Stores)
	}

	if e, ok := read(params("etcd", "db1,db2:5", "")).Access.(*elastic.Elected); !ok || e.RunID != "job7" {
		t.Errorf("etcd: %+v", e)
	}
	for _, backend := range []string{"c10d", "etcd", "static"} {
		p := params(backend, "", "")
		p.MinNodes, p.MaxNodes = 1, 1
		got := read(p)
		if a, ok := got.Access.(*elastic.C10d); !ok || !a.SingleNode || got.Stores.Addr != "127.0.0.1" || got.Node.Hint != -1 {
			t.Errorf("%s on one node: %+v", backend, got)
		}
	}
}

func TestEtcdOptions(t *testing.T) {
	p := params("etcd", "db1,[::1]:5", "protocol=https ca_cert=ca cert=c key=k user=u password=p etcd_prefix=/x/")
	got, err := EtcdOptions(Options{}, p)
	want := etcd.Options{
		Endpoints: []string{"https://db1:2379", "https://[::1]:5"}, TLS: etcd.TLS{CA: "ca", Cert: "c", Key: "k"},
		User: "u", Password: "p", Prefix: "/x", TTL: 15 * time.Second,
	}
	got.Logger = nil
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// Create refuses parameters that cannot work, with the value and what to do. It warns of options without effect.
func TestCreateRefuses(t *testing.T) {
	var registry rdzv.Registry
	if err := Register(&registry, Options{}); err != nil {
		t.Fatal(err)
	}
	otherRun, fewer := params("c10d", "h", ""), params("c10d", "h", "")
	otherRun.RunID, fewer.MinNodes = "a/b", 5
	for want, p := range map[string]rdzv.Parameters{
		`rendezvous backend "c10e" is not registered; known: c10d, etcd, static`: params("c10e", "h", ""),
		`run id "a/b": must not be empty or contain a slash`:                     otherRun,
		`rendezvous max nodes 4: must be at least min nodes, 5`:                  fewer,
		`rendezvous endpoint "": several nodes need an endpoint at which they meet, HOST[:PORT], the same on all nodes`: params(
			"c10d", "", ""),
		`rendezvous endpoint "h:0": several nodes need a port that they all know`:                                params("c10d", "h:0", ""),
		`rendezvous endpoint "h:x": the port "x" must be a number between 0 and 65535`:                           params("etcd", "h:x", ""),
		`rendezvous endpoint "h": several nodes need a port that they all know`:                                  params("static", "h", "rank=0"),
		`rendezvous option rank -1: the static backend needs the rank of this node, from 0 to 3`:                 params("static", "h:1", ""),
		`rendezvous option rank="x": not an integer`:                                                             params("c10d", "h", "rank=x"),
		`rendezvous backend c10d: unknown option joint_imeout; the nearest is join_timeout`:                      params("c10d", "h", "joint_imeout=1"),
		`rendezvous backend c10d: join_timeout=soon must be a whole number, at least 1`:                          params("c10d", "h", "join_timeout=soon"),
		`rendezvous backend etcd: user and password (or password_file) belong together`:                          params("etcd", "h", "user=me"),
		`rendezvous backend etcd: password_file=/none/f cannot be read: open /none/f: no such file or directory`: params("etcd", "h", "password_file=/none/f"),
		`rendezvous backend etcd: keep_alive_interval × keep_alive_max_attempt must be at least 2 seconds with etcd`: params(
			"etcd", "h", "keep_alive_interval=1 keep_alive_max_attempt=1"),
	} {
		if h, err := registry.Create(t.Context(), p); h != nil || err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	var log bytes.Buffer
	o := Options{Logger: zerolog.New(&log)}
	if _, err := o.read(params("c10d", "h", "protocol=http")); err != nil {
		t.Error(err)
	}
	if want := "rendezvous backend c10d: protocol has no effect with the c10d backend"; !strings.Contains(log.String(), want) {
		t.Errorf("the log has %s, want %s", &log, want)
	}
}

// Settings that the caller has read replace the options.
func TestSettingsOfTheCaller(t *testing.T) {
	settings := rdzvconf.Defaults("c10d")
	settings.JoinTimeout = time.Minute
	o := Options{Settings: &settings, Ports: []int{1, 2}, Configure: func(e *elastic.Options) { e.SharedRunID = true }}
	in, err := o.read(params("c10d", "h", "rank=2"))
	if err != nil {
		t.Fatal(err)
	}
	got := o.handler(in, &machine.Identity{})
	ports := got.Access.(*elastic.C10d).Ports
	if got.Job.JoinTimeout != time.Minute || !slices.Equal(ports, []int{1, 2}) || !got.SharedRunID {
		t.Errorf("got %+v", got)
	}
}

// A node of several takes an identity, and Shutdown releases it.
func TestIdentity(t *testing.T) {
	p := params("c10d", "127.0.0.1:29400", "rank=1")
	p.RunID = "TestIdentity"
	for range 2 {
		h, err := New(t.Context(), p, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := h.(*identified).identity.Name; got != "hint:1/0" {
			t.Errorf("the identity is %s, so an earlier one is still held", got)
		}
		for range 2 {
			if err := h.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// The table has one entry for each name and backend.
func TestOptionsTable(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range rdzvconf.Options() {
		for _, backend := range o.Backends {
			for _, name := range o.Names {
				if seen[backend+" "+name] {
					t.Errorf("%s has %s twice", backend, name)
				}
				seen[backend+" "+name] = true
			}
		}
	}
}
