package rdzv

import (
	"fmt"
	"net"
	"strconv"
)

// Names of the backends that elasticrun has. Package elastic, beneath this one, has all of them.
const (
	BackendC10d   = "c10d"   // a store of elasticrun's own
	BackendEtcd   = "etcd"   // etcd, version 3 of its API
	BackendStatic = "static" // ranks and the worker store's address are given
)

// Addresses that torchrun gives a static job that names none.
const (
	StaticMasterAddr = "127.0.0.1"
	StaticMasterPort = 29500
)

// ListenError says that a store could not listen where it was told to.
type ListenError struct {
	Addr string // host as configured; empty for all addresses
	Port int
	Err  error // errors.Is tells syscall.EADDRINUSE, EADDRNOTAVAIL, EACCES
}

func (e *ListenError) Error() string {
	return fmt.Sprintf("listen for the worker store on %s: %v", net.JoinHostPort(e.Addr, strconv.Itoa(e.Port)), e.Err)
}

// Unwrap makes it an [ErrConnection] too.
func (e *ListenError) Unwrap() []error { return []error{ErrConnection, e.Err} }
