package rdzv

import (
	"fmt"
	"net"
	"strconv"
)

// Names of elasticrun's backends, which package backends creates from the parts of package elastic.
const (
	BackendC10d   = "c10d"   // elasticrun's own store
	BackendEtcd   = "etcd"   // etcd, with version 3 of its API
	BackendStatic = "static" // the ranks and the worker store's address are configured
)

// The worker store's address in a static job that configures none, as in torchrun.
const (
	StaticMasterAddr = "127.0.0.1"
	StaticMasterPort = 29500
)

// ListenError says that a store could not listen at the configured address.
type ListenError struct {
	Addr string // host as configured; empty for all addresses
	Port int
	Err  error // such as syscall.EADDRINUSE, EADDRNOTAVAIL or EACCES
}

func (e *ListenError) Error() string {
	return fmt.Sprintf("listen for the worker store on %s: %v", net.JoinHostPort(e.Addr, strconv.Itoa(e.Port)), e.Err)
}

// Unwrap returns [ErrConnection] and Err.
func (e *ListenError) Unwrap() []error { return []error{ErrConnection, e.Err} }
