package rpc

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/rpc/device"
	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
)

// Defaults of [GRPCOptions].
const (
	DefaultMaxPayload  = 64 << 20
	DefaultLockTimeout = 5 * time.Second
	DefaultGroup       = "rpc"
)

// minLockTimeout keeps the lock from being broken while its holder is only slow.
const minLockTimeout = 100 * time.Millisecond

// largestPayload is the largest message of gRPC, less a reserve for the envelope.
const largestPayload = 1<<31 - 1<<20

// GRPCOptions are the options of the backend [GRPC], the counterpart of TensorPipeRpcBackendOptions in torch. The zero
// value is ready to use. Unset options come from the environment, see [Environment], and then from the defaults.
//
// Some options of torch have no counterpart. _transports: gRPC over TCP is the only transport. _channels: they move
// tensors between devices, and this package moves no tensors; it exchanges and checks device maps for programs that do.
// num_worker_threads: each call has a goroutine, because a limit could let nested calls wait for each other forever.
type GRPCOptions struct {
	Common

	// Address is the address HOST:PORT to listen on. It must be an address of this host that the other workers can
	// reach; port 0 means any free port. "" means ELASTICRUN_RPC_ADDR, or else the local address of the connection to
	// the store.
	Address string

	// ServerTLS and ClientTLS configure the two ends of TLS. Set both or neither. If they are nil, TLSFiles counts.
	ServerTLS, ClientTLS *tls.Config
	// TLSFiles are the certificates of mutual TLS. The zero value means ELASTICRUN_RPC_CERT, _KEY, _CA and
	// _SERVER_NAME; without these, calls are not encrypted. Either all members of a group use TLS or none.
	TLSFiles TLSFiles

	// DeviceCount is the number of GPUs of this worker. 0 means ELASTICRUN_GPU_COUNT, which elasticrun sets, or else the
	// number of GPUs of NVIDIA or AMD that this process sees. A negative number means no GPU.
	//
	// Without DeviceMaps and Devices of its own a worker does not run nvidia-smi, which may take seconds, and counts no
	// GPU where only nvidia-smi knows the number (in WSL, or before the driver has created its device nodes).
	DeviceCount int
	// DeviceMaps has, for the name of another worker, a map from devices of this worker to devices of that worker.
	DeviceMaps map[string]device.Map
	// Devices are the devices that this worker uses. If empty, they follow from its own maps and the maps of other
	// workers.
	Devices []device.Device

	// MaxPayload is the limit of the payload of a request or an answer in bytes. 0 means ELASTICRUN_RPC_MAX_PAYLOAD, or
	// else DefaultMaxPayload.
	MaxPayload int

	// LockTimeout is how long the holder of the lock of a dynamic group may fail to renew it before another member
	// breaks it. 0 means DefaultLockTimeout.
	LockTimeout time.Duration
	// KeepAlive is how long a peer may be silent before it gets a keep-alive ping. 0 means 20 s in a static group. In a
	// dynamic group it means the minimum of gRPC: 1 s on the called side, 10 s on the calling side. Shorter times count
	// as this minimum.
	KeepAlive time.Duration

	// Group is a name that separates the keys of several groups in one store. "" means DefaultGroup, followed by the
	// attempt after torchrun has restarted the workers of a job on one node, because torchrun keeps its store.
	Group string
}

// TLSFiles are the files of mutual TLS. Each worker shows its certificate, and one private CA has signed the
// certificates of all workers.
type TLSFiles struct {
	// Cert, Key and CA are paths of PEM files. Set all three.
	Cert, Key, CA string
	// ServerName is the name in the certificates of the other workers; "" means the host of each worker's address.
	ServerName string
}

// check returns an error if the files are incomplete. Its arguments are the names of the four settings in the error.
func (f TLSFiles) check(cert, key, ca, serverName string) error {
	if f == (TLSFiles{}) || f.Cert != "" && f.Key != "" && f.CA != "" {
		return nil
	}
	var set, missing string
	for _, file := range []struct{ name, value string }{
		{serverName, f.ServerName}, {ca, f.CA}, {key, f.Key}, {cert, f.Cert},
	} {
		switch {
		case file.value != "":
			set = file.name
		case file.name != serverName:
			missing = file.name
		}
	}
	return fmt.Errorf("%s is set, but %s is not: "+
		"mutual TLS needs a certificate, its key and the CA of all workers (%s, %s, %s)",
		set, missing, cert, key, ca)
}

// Base returns the options that every backend has.
func (o *GRPCOptions) Base() Common {
	if o == nil {
		return Common{}
	}
	return o.Common
}

// WithEnvironment returns a copy of the options whose unset fields come from e.
func (o *GRPCOptions) WithEnvironment(e Environment) BackendOptions {
	var filled GRPCOptions
	if o != nil {
		filled = *o
	}
	filled.Address = cmp.Or(filled.Address, e.Address)
	filled.DeviceCount = cmp.Or(filled.DeviceCount, e.GPUCount)
	filled.MaxPayload = cmp.Or(filled.MaxPayload, e.MaxPayload)
	filled.Group = cmp.Or(filled.Group, e.Group)
	if filled.TLSFiles == (TLSFiles{}) && filled.ServerTLS == nil && filled.ClientTLS == nil {
		filled.TLSFiles = e.TLS
	}
	return &filled
}

// Validate returns an error with one line per invalid option.
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
		refuse("LockTimeout %v: must be %s or more, or 0 for %s", o.LockTimeout, seconds.Format(minLockTimeout),
			seconds.Format(DefaultLockTimeout))
	}
	if o.KeepAlive < 0 {
		refuse("KeepAlive %v: must not be negative; 0 means the default", o.KeepAlive)
	}
	if o.Group != "" {
		if err := membership.CheckName(o.Group); err != nil {
			refuse("Group %q: must have the form of a worker name: %w", o.Group, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.DeviceMaps)) {
		if err := membership.CheckName(name); err != nil {
			refuse("DeviceMaps: %w", err)
		}
	}
	return errors.Join(bad...)
}
