package backends

import (
	"cmp"
	"testing"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

// The workers' stores of a job whose agents are all on this machine listen at the loopback address alone, so that they
// serve nobody else.
func TestStoresOfThisMachine(t *testing.T) {
	for _, tt := range []struct {
		name, backend, endpoint string
		most                    int
		config                  map[string]string
		local                   string // LocalAddr
		addr                    string
		oneNode                 bool
	}{
		{name: "one node", most: 1, addr: "127.0.0.1", oneNode: true},
		{name: "localhost", endpoint: "LocalHost:29400", most: 2, addr: "127.0.0.1"},
		{name: "a loopback address", endpoint: "127.0.0.2:29400", most: 2, addr: "127.0.0.1"},
		{name: "localhost with a dot", endpoint: "localhost.:29400", most: 2, addr: "127.0.0.1"},
		{name: "IPv6", endpoint: "[::1]:29400", most: 2, addr: "127.0.0.1"},
		{name: "an address of its own", endpoint: "localhost:29400", most: 2, local: "10.0.0.7", addr: "10.0.0.7"},
		{
			name: "a tunnel to the host", endpoint: "localhost:29400", most: 2,
			config: map[string]string{"is_host": "false"},
		},
		{name: "another machine", endpoint: "10.0.0.1:29400", most: 2},
		{name: "a name", endpoint: "node0:29400", most: 2},
		{name: "etcd", backend: rdzv.BackendEtcd, endpoint: "localhost:2379", most: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			users := &elastic.StoreUsers{IDs: []int{7}}
			var got elastic.WorkerStores
			_, err := New(t.Context(), rdzv.Parameters{
				Backend: cmp.Or(tt.backend, rdzv.BackendC10d), Endpoint: tt.endpoint, RunID: "run", MinNodes: 1, MaxNodes: tt.most, Config: tt.config,
			}, Options{
				LocalAddr: tt.local, StoreUsers: users, Identity: &machine.Identity{Host: "h", Name: "n"},
				Configure: func(o *elastic.Options) { got = o.Stores },
			})
			if err != nil {
				t.Fatal(err)
			}
			if got.Addr != tt.addr || got.OneNode != tt.oneNode || got.Users != users {
				t.Errorf("the store is at %q, one node %v, users %v", got.Addr, got.OneNode, got.Users)
			}
		})
	}
}
