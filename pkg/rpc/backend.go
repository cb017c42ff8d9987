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

// GRPC is the name of the built-in backend, the counterpart of TENSORPIPE in torch.
const GRPC = "GRPC"

// Keep-alive of connections: a peer that is silent for the quiet time gets a ping, and must answer it within the time
// for a sign of life. A dynamic group detects deaths by these pings, so its quiet time is the shortest that gRPC
// allows. In a static group only calls depend on the pings, and a worker that is suspended for a short time must not
// lose its calls.
const (
	dynamicSignOfLife = 5 * time.Second
	staticQuiet       = 20 * time.Second
	staticSignOfLife  = 20 * time.Second
)

// NewRegistry returns a registry that contains the built-in backend, [GRPC].
func NewRegistry() (*Registry, error) {
	r := &Registry{}
	return r, r.Register(GRPC, Backend{
		NewOptions: func(c Common) (BackendOptions, error) { return &GRPCOptions{Common: c}, nil },
		Check:      checkGRPC,
		Init:       initGRPC,
	})
}

// checkGRPC is Backend.Check of [GRPC].
func checkGRPC(options BackendOptions) error {
	own, err := OptionsAs[*GRPCOptions](GRPC, options)
	if err != nil {
		return err
	}
	return own.Validate()
}

// initGRPC is Backend.Init of [GRPC] and returns a [*grpcAgent]. It listens before it publishes the address. After an
// error it leaves nothing behind.
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

// warnUnencrypted logs that calls are not encrypted; only the member with id 0 calls it. The level is info for a
// loopback address, which other hosts cannot observe.
func warnUnencrypted(log zerolog.Logger, address string) {
	level := zerolog.WarnLevel
	if addr, err := netip.ParseAddrPort(address); err == nil && addr.Addr().IsLoopback() {
		level = zerolog.InfoLevel
	}
	log.WithLevel(level).Str("address", address).
		Msgf("calls between workers are not encrypted; set %s, %s and %s to use mutual TLS", envCert, envKey, envCA)
}

// security returns the TLS configurations of both ends, or nil for plain connections.
func (o *GRPCOptions) security() (server, client *tls.Config, err error) {
	if o.TLSFiles == (TLSFiles{}) {
		return o.ServerTLS, o.ClientTLS, nil
	}
	return transport.LoadTLS(o.TLSFiles.Cert, o.TLSFiles.Key, o.TLSFiles.CA, o.TLSFiles.ServerName)
}

// groupStore returns a view of store with the keys of the group.
func (o *GRPCOptions) groupStore(store kvstore.Store) kvstore.Store {
	return kvstore.NewPrefixStore("rpc/"+cmp.Or(o.Group, DefaultGroup), store)
}

// record returns the record that this worker publishes.
func (o *GRPCOptions) record(args InitArgs, address string) (membership.Record, error) {
	host, err := os.Hostname()
	if err != nil {
		return membership.Record{}, fmt.Errorf("get the name of this host: %w", err)
	}
	return membership.Record{
		Version: membership.Version, Name: args.Name, ID: args.Rank, WorldSize: args.WorldSize,
		Incarnation: newIncarnation(), Host: host, Address: address,
		Secure:      o.TLSFiles != (TLSFiles{}) || o.ServerTLS != nil,
		DeviceCount: max(0, o.DeviceCount), DeviceMaps: o.DeviceMaps, Devices: o.Devices,
	}, nil
}

// newIncarnation returns a random number that is not 0 and identifies this member.
func newIncarnation() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return max(1, binary.BigEndian.Uint64(b[:]))
}
