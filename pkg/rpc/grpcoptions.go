package rpc

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rpc/device"
	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
)

// The defaults of [GRPCOptions].
const (
	DefaultMaxPayload  = 64 << 20
	DefaultLockTimeout = 5 * time.Second
	DefaultGroup       = "rpc"
)

// minLockTimeout keeps a lock from being taken from a holder that is only slow.
const minLockTimeout = 100 * time.Millisecond

// largestPayload is what gRPC can carry in one message, less what travels with a payload.
const largestPayload = 1<<31 - 1<<20

// GRPCOptions are the options of the backend [GRPC], the counterpart of torch's TENSORPIPE. The zero value is ready: what
// it leaves open comes from the environment, see [Environment], and then from the defaults.
//
// Some of TENSORPIPE's options have no counterpart. Transports: gRPC over TCP is the only one, and chooses nothing. Channels: they
// move tensors between devices, and here no tensors are moved; device maps are exchanged and checked for those who do. The number of worker
// threads: a goroutine serves each call, and a limit would let nested calls wait for each other for ever.
type GRPCOptions struct {
	Common

	// Address is where to listen, HOST:PORT, an address of this host by which the other workers reach it; port 0 is a free one. "" is
	// ELASTICRUN_RPC_ADDR, or else the address from which the store was reached.
	Address string

	// ServerTLS and ClientTLS are the two sides of TLS: both or neither. Nil leaves it to TLSFiles.
	ServerTLS, ClientTLS *tls.Config
	// TLSFiles are the certificates of mutual TLS. The zero value is ELASTICRUN_RPC_CERT, _KEY, _CA and _SERVER_NAME; without them nothing
	// is encrypted. All members of a group must do the same.
	TLSFiles TLSFiles

	// DeviceCount is the number of GPUs that this worker has. 0 is ELASTICRUN_GPU_COUNT, which the agent sets, or none; a
	// negative number is none in any case.
	DeviceCount int
	// DeviceMaps say, by the name of another worker, which device of that one takes what a device of this one holds.
	DeviceMaps map[string]device.Map
	// Devices are those that this worker uses; none leaves that to its own maps and the others'.
	Devices []device.Device

	// MaxPayload is the limit of a request or an answer in bytes, not counting the few that travel with it. 0 is
	// ELASTICRUN_RPC_MAX_PAYLOAD, or else DefaultMaxPayload.
	MaxPayload int

	// LockTimeout is how long the holder of a dynamic group's lock may say nothing before the lock is broken. 0 is DefaultLockTimeout.
	LockTimeout time.Duration
	// KeepAlive is how long the other end of a connection may say nothing before it is asked for a sign of life. 0 is 20 s in a static group and gRPC's
	// shortest in a dynamic one: a second on the side that is called, ten on the side that calls; shorter times count as these.
	KeepAlive time.Duration

	// Group keeps the keys of several groups in one store apart. "" is DefaultGroup, with the attempt where torchrun has restarted the
	// workers of one node, since it keeps its store.
	Group string
}

// TLSFiles are the files of mutual TLS: each worker shows its certificate, and one private CA has signed them all.
type TLSFiles struct {
	// Cert, Key and CA are paths of PEM files. All three are needed.
	Cert, Key, CA string
	// ServerName is the name that the others' certificates are for; "" is the host of each one's address.
	ServerName string
}

// check tells what is missing; the arguments are how the user knows the four.
func (f TLSFiles) check(cert, key, ca, serverName string) error {
	if f == (TLSFiles{}) || f.Cert != "" && f.Key != "" && f.CA != "" {
		return nil
	}
	var set, missing string
	for _, file := range []struct{ name, value string }{{serverName, f.ServerName}, {ca, f.CA}, {key, f.Key}, {cert, f.Cert}} {
		switch {
		case file.value != "":
			set = file.name
		case file.name != serverName:
			missing = file.name
		}
	}
	return fmt.Errorf("%s is set, but %s is not: mutual TLS needs a certificate, its key and the CA of the others' (%s, %s, %s)",
		set, missing, cert, key, ca)
}

// Base returns the options that every backend has.
func (o *GRPCOptions) Base() Common {
	if o == nil {
		return Common{}
	}
	return o.Common
}

// WithEnvironment returns the options with what they leave open taken from the environment.
func (o *GRPCOptions) WithEnvironment(e Environment) BackendOptions {
	var filled GRPCOptions
	if o != nil {
		filled = *o
	}
	if filled.Address == "" {
		filled.Address = e.Address
	}
	if filled.DeviceCount == 0 {
		filled.DeviceCount = e.GPUCount
	}
	if filled.MaxPayload == 0 {
		filled.MaxPayload = e.MaxPayload
	}
	if filled.Group == "" {
		filled.Group = e.Group
	}
	if filled.TLSFiles == (TLSFiles{}) && filled.ServerTLS == nil && filled.ClientTLS == nil {
		filled.TLSFiles = e.TLS
	}
	return &filled
}

// Validate tells what cannot be meant, a line for each.
func (o *GRPCOptions) Validate() error {
	var bad []error
	refuse := func(format string, args ...any) { bad = append(bad, fmt.Errorf("option "+format, args...)) }
	if o.Address != "" {
		if _, err := parseAddress(o.Address); err != nil {
			refuse("Address %q: %w", o.Address, err)
		}
	}
	if (o.ServerTLS == nil) != (o.ClientTLS == nil) {
		refuse("ServerTLS and ClientTLS: give both or neither; a worker both calls and is called")
	}
	if err := o.TLSFiles.check("TLSFiles.Cert", "TLSFiles.Key", "TLSFiles.CA", "TLSFiles.ServerName"); err != nil {
		refuse("%w", err)
	}
	if o.TLSFiles != (TLSFiles{}) && (o.ServerTLS != nil || o.ClientTLS != nil) {
		refuse("TLSFiles: give either files or ServerTLS and ClientTLS")
	}
	if o.MaxPayload < 0 || o.MaxPayload > largestPayload {
		refuse("MaxPayload %d: must be from 1 to %d bytes, or 0 for %d", o.MaxPayload, largestPayload, DefaultMaxPayload)
	}
	if o.LockTimeout != 0 && o.LockTimeout < minLockTimeout {
		refuse("LockTimeout %v: must be %v or more, or 0 for %v", o.LockTimeout, minLockTimeout, DefaultLockTimeout)
	}
	if o.KeepAlive < 0 {
		refuse("KeepAlive %v: must not be negative; 0 leaves it to the package", o.KeepAlive)
	}
	if o.Group != "" {
		if err := membership.CheckName(o.Group); err != nil {
			refuse("Group %q: write it as the name of a worker: %w", o.Group, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.DeviceMaps)) {
		if err := membership.CheckName(name); err != nil {
			refuse("DeviceMaps: %w", err)
		}
	}
	return errors.Join(bad...)
}
