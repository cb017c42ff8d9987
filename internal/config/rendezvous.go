package config

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// Rendezvous is how nodes find each other, and which of them stay in the job when nodes are lost or added.
type Rendezvous struct {
	// Backend is the backend's name; not empty. It may be a name that is not registered.
	Backend string
	// Endpoint is host[:port] of the rendezvous as it was given. With port 0 the launcher chooses. With static it is
	// the master address.
	Endpoint string
	// Endpoints is Endpoint, parsed, with the backend's default port if none was given: one or several with etcd, and with
	// c10d if the agents keep the store together. Static has one. It is nil for backends that this package does not know,
	// for etcd on one node without an endpoint, and if Local.
	Endpoints []HostPort
	// Local says that the nodes are agents of this user on this machine, and meet at a Unix socket: Endpoint is local.
	Local bool
	// Ports are the ports that the store of c10d may have on several nodes, first choice first, at each endpoint. There is
	// one if the port was given or is the backend's own: that of the first endpoint.
	Ports []int
	// OwnEndpoint is the index of the endpoint that is this node, as the scheduler says, or -1 for none. Nil means that
	// the agent finds out.
	OwnEndpoint *int
	// MasterAddr is where the worker store listens, without brackets. If it is empty, the rendezvous decides (c10d
	// and etcd on several nodes).
	MasterAddr string
	// MasterPort is the worker store's port; 0 takes a free one.
	MasterPort int
	// LocalAddr is the address that this node announces; empty if not given.
	LocalAddr string `flag:"local-addr"`
	// WorkerStorePorts are the ports that this node's worker store may take; zero for any.
	WorkerStorePorts PortRange `flag:"worker-store-port"`
	// StoreUsers are further users, besides this one and root, whom a store serves that only this machine can reach.
	StoreUsers StoreUsers `flag:"store-users"`
	// Hint is the rank that --node-rank or the scheduler gave this node, or -1. Several agents of a machine may have
	// the same. With static on several nodes it is the rank, and below MaxNodes.
	Hint int
	// Expected is the number of nodes that are known to come, in [MinNodes, MaxNodes]; 0 if it is unknown.
	Expected int
	// LaunchID is the same on all agents of this launch and on no others; empty if it is unknown. LaunchRestarts says
	// that the user gave the id, and may restart agents of the launch with it.
	LaunchID       string `flag:"launch-id"`
	LaunchRestarts bool
	// Secret is what all agents of the job must know; empty for none.
	Secret Secret
	// SecretSource names the setting that the secret came from; empty for none.
	SecretSource string
	// RequireAuth refuses a store that serves everybody who can reach it.
	RequireAuth bool `flag:"require-auth"`

	// Settings are the options of --rdzv-conf.
	rdzvconf.Settings

	// RestartWindow is the age at which failures no longer count against MaxRestarts; 0 for never.
	RestartWindow time.Duration `flag:"restart-window"`
	// MaxNodeLosses is the number of losses after which a node is excluded; 0 for never.
	MaxNodeLosses int `flag:"max-node-losses"`
	// RejoinTimeout is how long the nodes of a round that has ended may take to stop their workers: above
	// RestartGrace and at least TTL.
	RejoinTimeout time.Duration
	// Grow is when a running job admits new nodes: now, next-restart or never.
	Grow string `flag:"grow"`
	// MinUptime is how long a round must last so that its failure causes no pause; 0 for no pauses.
	MinUptime time.Duration `flag:"min-uptime"`
}

// PortRange is a range of ports that includes both ends. The zero value is no range.
type PortRange struct{ Low, High int }
