package preview

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// TestKnownVariables checks which of a worker's variables the plans of several kinds of jobs know.
func TestKnownVariables(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		job  config.Config
		want string // these variables of the second worker; ? for unknown
	}{
		{
			name: "one node", want: "RANK=1 WORLD_SIZE=2 GROUP_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=? TORCHELASTIC_RUN_ID=?",
			job: config.Config{MinNodes: 1, MaxNodes: 1, Rendezvous: config.Rendezvous{
				Backend:    rdzv.BackendC10d,
				MasterAddr: "127.0.0.1", Hint: -1,
			}},
		},
		{
			name: "static", want: "RANK=5 WORLD_SIZE=8 GROUP_RANK=2 MASTER_ADDR=a MASTER_PORT=7 TORCHELASTIC_RUN_ID=job",
			job: config.Config{MinNodes: 4, MaxNodes: 4, Rendezvous: config.Rendezvous{
				Backend:    rdzv.BackendStatic,
				MasterAddr: "a", MasterPort: 7, Hint: 2,
			}},
		},
		{
			name: "fixed number of nodes", want: "RANK=? WORLD_SIZE=8 GROUP_RANK=? MASTER_ADDR=? MASTER_PORT=? TORCHELASTIC_RUN_ID=job",
			job: config.Config{MinNodes: 4, MaxNodes: 4, Rendezvous: config.Rendezvous{Backend: rdzv.BackendC10d, Hint: 2}},
		},
		{
			name: "elastic", want: "RANK=? WORLD_SIZE=? GROUP_RANK=? MASTER_ADDR=? MASTER_PORT=? TORCHELASTIC_RUN_ID=job",
			job: config.Config{MinNodes: 1, MaxNodes: 4, Rendezvous: config.Rendezvous{Backend: rdzv.BackendEtcd, Hint: -1}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.job.NprocPerNode, tc.job.RunID, tc.job.Role = 2, "job", "default"
			p, err := assemble(input{
				Host: "h", Config: &tc.job, Inherited: []string{"HOME=/h", "RANK=1"}, Env: []string{"HOME=/h", "RANK=1"},
				Spec: agent.WorkerSpec{Role: "default", LocalWorldSize: 2, Entrypoint: "true", Output: workerlog.OutputRules{}},
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for name := range strings.FieldsSeq(tc.want) {
				name, _, _ = strings.Cut(name, "=")
				for _, v := range p.Workers[1].Env {
					if v.Name == name {
						got = append(got, v.text())
					}
				}
			}
			want := tc.want
			if tc.name == "one node" { // the launcher's environment has it with this value
				want = strings.TrimPrefix(want, "RANK=1 ")
			}
			if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, v := range p.Workers[1].Env {
				if v.Name == "HOME" {
					t.Error("the launcher's own environment is shown")
				}
			}
		})
	}
}

// TestHosting checks which node hosts the store, by what is found at the endpoint.
func TestHosting(t *testing.T) {
	t.Parallel()
	yes := true
	here := Address{Addr: netip.MustParseAddr("10.0.0.1"), Local: true, State: StateNobody}
	there := Address{Addr: netip.MustParseAddr("10.0.0.2"), State: StateNobody}
	served := Address{Addr: netip.MustParseAddr("10.0.0.1"), Local: true, State: StateThisRun, Store: &StoreInfo{}}
	for _, tc := range []struct {
		name   string
		nodes  int
		at     []Address
		isHost *bool
		hint   int
		etcd   bool
		want   string
	}{
		{name: "one node", nodes: 1, want: HostsAlone},
		{name: "etcd", nodes: 2, etcd: true, at: []Address{here}, want: HostsElection},
		{name: "this machine", nodes: 2, at: []Address{here}, hint: -1, want: HostsYes},
		{name: "another machine", nodes: 2, at: []Address{there}, hint: -1, want: HostsNo},
		{name: "is_host", nodes: 2, at: []Address{there}, isHost: &yes, hint: -1, want: HostsYes},
		{name: "some of its addresses", nodes: 2, at: []Address{here, there}, hint: -1, want: HostsUnknown},
		{name: "some, and the first rank", nodes: 2, at: []Address{here, there}, hint: 0, want: HostsYes},
		{name: "served already", nodes: 2, at: []Address{served}, hint: -1, want: HostsNo},
		{
			name: "taken", nodes: 2, at: []Address{{Addr: here.Addr, Local: true, State: StateUnknownProgram}}, hint: -1,
			want: HostsNo,
		},
		{name: "not found", nodes: 2, hint: -1, want: HostsUnknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := &config.Config{MaxNodes: tc.nodes, Rendezvous: config.Rendezvous{
				Backend: rdzv.BackendC10d, Hint: tc.hint, Settings: rdzvconf.Settings{IsHost: tc.isHost},
			}}
			if tc.etcd {
				c.Rendezvous.Backend = rdzv.BackendEtcd
			}
			e := Endpoint{Host: "host", Port: 29400, Addresses: tc.at}
			if tc.at == nil {
				e.Problem = "no such host"
			}
			if got, why := hosting(c, []Endpoint{e}); got != tc.want || why == "" {
				t.Errorf("%s (%s), want %s", got, why, tc.want)
			}
		})
	}
}

func TestKeepers(t *testing.T) {
	const alone = "by its host alone, unless elasticrun store is there: the loss of the host ends the job"
	no := false
	at := func(hosts ...string) (all []config.HostPort) {
		for _, h := range hosts {
			all = append(all, config.HostPort{Host: h, Port: 29400})
		}
		return all
	}
	for _, tc := range []struct {
		name   string
		nodes  int
		at     []config.HostPort
		change func(*config.Rendezvous)
		want   string
	}{
		{name: "one node", nodes: 1, at: at("a")},
		{name: "two nodes", nodes: 2, at: at("a"), want: "by its host, unless elasticrun store is there: it hands over to " +
			"the other node when it is told to stop or its agent is killed; if its node is lost, the other one waits for it and ends"},
		{
			name: "three nodes", nodes: 3, at: at("a"), want: "by 3 nodes once as many have joined: any one may be lost; newcomers " +
				"find the job only at the endpoint: name three nodes (--rdzv-endpoint=HOST,HOST,HOST) to do without the first",
		},
		{
			name: "three endpoints", nodes: 3, at: at("a", "b", "c"), want: "by 3 nodes once as many have joined: any one may be " +
				"lost; newcomers find the job while one of the endpoints is left",
		},
		{name: "one voter", nodes: 3, at: at("a"), change: func(r *config.Rendezvous) { r.Voters = 1 }, want: alone},
		{name: "this machine", nodes: 3, at: at("127.0.0.1"), want: alone},
		{
			name: "a tunnel", nodes: 3, at: at("127.0.0.1", "127.0.0.2"),
			change: func(r *config.Rendezvous) { r.IsHost, r.Voters = &no, 5 },
			want:   "by 5 nodes once as many have joined: any one may be lost; newcomers find the job while one of the endpoints is left",
		},
		{name: "etcd", nodes: 3, at: at("a"), change: func(r *config.Rendezvous) { r.Backend = rdzv.BackendEtcd }},
		{name: "a socket", nodes: 3, change: func(r *config.Rendezvous) { r.Local = true }},
	} {
		c := &config.Config{MaxNodes: tc.nodes}
		c.Rendezvous = config.Rendezvous{Backend: rdzv.BackendC10d, Endpoints: tc.at}
		c.Rendezvous.Voters = 3
		if tc.change != nil {
			tc.change(&c.Rendezvous)
		}
		if got := Keepers(c); got != tc.want {
			t.Errorf("%s: %s\nwant %s", tc.name, got, tc.want)
		}
	}
}
