package config

import "time"

// Rendezvous is what was told of how nodes find each other and of who stays in the job when some go.
type Rendezvous struct {
	// Backend is the backend's name; not empty. Whether such a backend is registered is not checked here.
	Backend string
	// Endpoint is host[:port] of the rendezvous as it was given. With port 0 the launcher chooses. With static it is the
	// master address.
	Endpoint string
	// Endpoints are the same, read, with the backend's own port where none was given: several with etcd, else one. Nil
	// for backends that are not known here, and with etcd on one node where none was given.
	Endpoints []HostPort
	// Ports are the ports that the store of c10d may have on several nodes, first choice first: one where it was given or is the
	// backend's own. The first is that of Endpoints.
	Ports []int
	// Conf holds --rdzv-conf by the names that were given. For backends that are known here all of it is in the fields
	// below too, and passwords only there.
	Conf map[string]string
	// MasterAddr is where the worker store listens, without brackets. Empty: the
	// rendezvous decides (c10d and etcd on several nodes).
	MasterAddr string
	// MasterPort is the worker store's port; 0 means choose a free one.
	MasterPort int
	// LocalAddr is the address this node announces; empty: not given.
	LocalAddr string
	// WorkerStorePorts are the ports that this node's worker store may take; zero for any.
	WorkerStorePorts PortRange
	// Hint is the rank that this node was given, or -1: --node-rank, else that of the scheduler. Several agents
	// of a machine may have the same. With static on several nodes it is the rank, and below MaxNodes.
	Hint int
	// Expected is the number of nodes that are known to come, in [MinNodes, MaxNodes]; 0 where that is not known.
	Expected int
	// IsHost says whether this agent hosts the store; nil where that is to be found out.
	IsHost *bool
	// LaunchID is the same on all agents of this launch and on no others; empty where it is not known. LaunchRestarts says that its agents may be
	// started again by whoever gave it.
	LaunchID       string
	LaunchRestarts bool
	// Secret is what all agents of the job must know; empty for none.
	Secret Secret

	// JoinTimeout is how long a node waits for a round to be decided; above 0, as all of these.
	JoinTimeout time.Duration
	// LastCall is how long the first round stays open once the minimum is in.
	LastCall time.Duration
	// CloseTimeout is how long closing the run id may take.
	CloseTimeout time.Duration
	// HeartbeatTimeout is how long one keep-alive may take.
	HeartbeatTimeout time.Duration
	// KeepAliveInterval is the time between keep-alives, of which KeepAliveMaxAttempt may be missed. See TTL.
	KeepAliveInterval   time.Duration
	KeepAliveMaxAttempt int
	// ReadTimeout is how long one answer of the store may take.
	ReadTimeout time.Duration
	// JoinSettle is how long a node that comes to a running job waits for others to come; may be 0.
	JoinSettle time.Duration
	// ResultTTL is how long the job's result stays, for late agents.
	ResultTTL time.Duration

	// RestartWindow is the age at which failures stop to count against MaxRestarts; 0 for never.
	RestartWindow time.Duration
	// MaxNodeLosses is how often a node may be lost before it is kept out of the job; 0 for as often as it likes.
	MaxNodeLosses int
	// RejoinTimeout is how long the nodes of a round that has ended may take to stop their workers: above
	// RestartGrace and at least TTL.
	RejoinTimeout time.Duration
	// Grow is now, next-restart or never: when nodes that come to a running job are let in.
	Grow string
	// MinUptime is how long a round must last not to be held up by backoff when it fails; 0 for no backoff.
	MinUptime time.Duration

	// Etcd is for that backend alone.
	Etcd Etcd
}

// TTL is how long a node that is not heard of counts as alive.
func (r *Rendezvous) TTL() time.Duration {
	return r.KeepAliveInterval * time.Duration(r.KeepAliveMaxAttempt)
}

// Etcd is how to reach etcd, beside Endpoints.
type Etcd struct {
	// TLS says that etcd speaks https. The files are empty where not given, Cert and Key both or none.
	TLS               bool
	CACert, Cert, Key string
	// User and Password are both given or both empty.
	User     string
	Password Secret
	// Prefix goes before all keys, without a slash at its end; may be empty.
	Prefix string
}

// PortRange is a range of ports, both ends in it. The zero value is no range.
type PortRange struct{ Low, High int }
