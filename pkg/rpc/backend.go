package rpc

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
	"github.com/elasticrun/elasticrun/pkg/rpc/transport"
)

// GRPC is the name of the backend that the package has, the counterpart of torch's TENSORPIPE.
const GRPC = "GRPC"

// How long the other end of a connection may say nothing until it is asked for a sign of life, and may take for that. In a dynamic group a death is
// noticed by it, so a worker is asked as soon as gRPC can. In a static one only calls depend on it, and one that stands still for a while is not to lose them.
const (
	dynamicSignOfLife = 5 * time.Second
	staticQuiet       = 20 * time.Second
	staticSignOfLife  = 20 * time.Second
)

// NewRegistry returns a registry that holds the package's own backend, [GRPC].
func NewRegistry() (*Registry, error) {
	r := &Registry{}
	return r, r.Register(GRPC, Backend{
		NewOptions: func(c Common) (BackendOptions, error) { return &GRPCOptions{Common: c}, nil },
		Check:      checkGRPC,
		Init:       initGRPC,
	})
}

// checkGRPC is the backend's Check.
func checkGRPC(options BackendOptions) error {
	own, err := OptionsAs[*GRPCOptions](GRPC, options)
	if err != nil {
		return err
	}
	return own.Validate()
}

// initGRPC is the backend's Init: what it returns is a [*grpcAgent]. It listens before anybody is told of the address, and on
// failure nothing of it is left.
func initGRPC(ctx context.Context, args InitArgs) (Agent, error) {
	options, err := OptionsAs[*GRPCOptions](GRPC, args.Options)
	if err != nil {
		return nil, err
	}
	server, client, err := options.security()
	if err != nil {
		return nil, err
	}
	quiet, signOfLife := options.KeepAlive, dynamicSignOfLife
	if args.WorldSize > 0 {
		quiet, signOfLife = cmp.Or(options.KeepAlive, staticQuiet), staticSignOfLife
	}
	ln, address, err := listen(ctx, options.Address, args.Store)
	if err != nil {
		return nil, err
	}
	self, err := options.record(args, address)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	a := newGRPCAgent(args, options, self)
	a.client = transport.NewPool(transport.ClientOptions{
		TLS: client, MaxMessage: a.limit + envelopeLimit, Quiet: quiet, Timeout: signOfLife, Logger: args.Logger,
	})
	a.server = transport.Serve(ln, transport.ServerOptions{
		TLS: server, MaxMessage: a.limit + envelopeLimit, Quiet: quiet, Timeout: signOfLife, Logger: args.Logger,
		Handle: a.answer, Watched: a.acceptWatch,
	})
	if err := a.join(ctx); err != nil {
		return nil, errors.Join(err, a.Shutdown(context.WithoutCancel(ctx), false))
	}
	if server == nil && a.Self().ID == 0 {
		warnUnencrypted(args.Logger, self.Address)
	}
	return a, nil
}

// warnUnencrypted is said once a group. Where nobody can listen in, it is no warning.
func warnUnencrypted(log zerolog.Logger, address string) {
	level := zerolog.WarnLevel
	if addr, err := netip.ParseAddrPort(address); err == nil && addr.Addr().IsLoopback() {
		level = zerolog.InfoLevel
	}
	log.WithLevel(level).Str("address", address).
		Msgf("calls between workers are not encrypted: %s, %s and %s name the files of mutual TLS", envCert, envKey, envCA)
}

// security returns both sides of TLS, or nothing.
func (o *GRPCOptions) security() (server, client *tls.Config, err error) {
	if o.TLSFiles == (TLSFiles{}) {
		return o.ServerTLS, o.ClientTLS, nil
	}
	return transport.LoadTLS(o.TLSFiles.Cert, o.TLSFiles.Key, o.TLSFiles.CA, o.TLSFiles.ServerName)
}

// groupStore is the part of a store that belongs to the group.
func (o *GRPCOptions) groupStore(store kvstore.Store) kvstore.Store {
	group := o.Group
	if group == "" {
		group = DefaultGroup
	}
	return kvstore.NewPrefixStore("rpc/"+group, store)
}

// record is what this worker tells the others of itself.
func (o *GRPCOptions) record(args InitArgs, address string) (membership.Record, error) {
	host, err := os.Hostname()
	if err != nil {
		return membership.Record{}, fmt.Errorf("the name of this host: %w", err)
	}
	return membership.Record{
		Version: membership.Version, Name: args.Name, ID: args.Rank, WorldSize: args.WorldSize,
		Incarnation: newIncarnation(), Host: host, Address: address,
		Secure:      o.TLSFiles != (TLSFiles{}) || o.ServerTLS != nil,
		DeviceCount: max(0, o.DeviceCount), DeviceMaps: o.DeviceMaps, Devices: o.Devices,
	}, nil
}

// newIncarnation returns a number that no other process has, and that is not 0.
func newIncarnation() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return max(1, binary.BigEndian.Uint64(b[:]))
}
