package rdzvconf

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord/certfiles"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Settings are the options of a backend. All times are above 0, unless a comment says otherwise.
type Settings struct {
	// JoinTimeout is how long a node waits until a round is decided.
	JoinTimeout time.Duration
	// LastCall is how long the first round stays open after the minimum number of nodes has joined.
	LastCall time.Duration
	// CloseTimeout is how long closing the run id, or leaving the exit barrier, may take.
	CloseTimeout time.Duration
	// HeartbeatTimeout is how long one keep-alive may take, and ReadTimeout one reply of the store. See RequestTimeout.
	HeartbeatTimeout, ReadTimeout time.Duration
	// KeepAliveInterval is the time between keep-alives, of which KeepAliveMaxAttempt may be missed. See TTL.
	KeepAliveInterval   time.Duration
	KeepAliveMaxAttempt int
	// JoinSettle is how long a node that joins a running job waits for more nodes, if more may join; may be 0.
	JoinSettle time.Duration
	// ResultTTL is how long the job's result is kept for late agents.
	ResultTTL time.Duration
	// IsHost says whether this agent hosts the store; nil if the agent must find out.
	IsHost *bool
	// Voters is how many agents keep elasticrun's own store together, if there are enough: 3 or 5, or 1 for one host.
	Voters int
	// Etcd is for that backend only.
	Etcd Etcd
	// Certificates are the site's, for elasticrun's own store: c10d and static.
	Certificates certfiles.Files
}

// Etcd is how to reach etcd, beside the endpoint.
type Etcd struct {
	// TLS says that etcd speaks https. The files are empty if not given; Cert and Key are given together or not at all.
	TLS               bool
	CACert, Cert, Key string
	// User and Password are given together or not at all.
	User     string
	Password Secret
	// Prefix goes before all keys, without a slash at its end; may be empty.
	Prefix string
}

// Defaults returns the settings of a backend that is given no options.
func Defaults(backend string) Settings {
	s := Settings{
		JoinTimeout: 600 * time.Second, LastCall: 30 * time.Second, CloseTimeout: 30 * time.Second,
		HeartbeatTimeout: 5 * time.Second, ReadTimeout: 60 * time.Second,
		KeepAliveInterval: 5 * time.Second, KeepAliveMaxAttempt: 3,
		JoinSettle: time.Second / 2, ResultTTL: 600 * time.Second, Voters: 3,
	}
	if backend == rdzv.BackendStatic {
		s.JoinTimeout = 900 * time.Second
	}
	return s
}

// TTL is how long a silent node counts as alive.
func (s *Settings) TTL() time.Duration {
	return s.KeepAliveInterval * time.Duration(s.KeepAliveMaxAttempt)
}

// RequestTimeout is how long one request to the store may take: so short that a node can try three times before it is
// lost.
func (s *Settings) RequestTimeout() time.Duration {
	return min(s.HeartbeatTimeout, s.ReadTimeout, s.TTL()/3)
}
