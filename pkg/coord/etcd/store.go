package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// Store is a client of an etcd cluster, with one session. Use Open.
type Store struct {
	options     Options
	cli         *clientv3.Client
	cancel      context.CancelFunc // ends the client's own context
	conns       *conns
	lease       clientv3.LeaseID
	ttl         time.Duration
	idleTimeout time.Duration // silence after which a stream asks whether the server is alive
	root        string        // prefix of all store keys
	sessionKey  string        // the key that exists as long as the session
	keepAlives  keepAliveStream
	keyOnce     sessionKeyOnce
	commitFence commitFence

	lost chan struct{}
	mu   sync.Mutex
	err  error // why lost is closed

	closing sync.Once
}

var _ coord.Store = (*Store)(nil)

// Open connects, logs in and begins a session. It fails after DialTimeout, or at once if no attempt can ever succeed.
// Its errors are a coord.RefusedError, coord.ErrUnavailable, or an error about the options.
//
// Connections are direct: Open ignores HTTP_PROXY and similar variables.
func Open(ctx context.Context, options Options) (*Store, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, options.DialTimeout)
	defer cancel()
	s := newStore(options, cancel)
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	granted, err := s.cli.Grant(ctx, int64(options.TTL/time.Second))
	if err != nil {
		err = s.explain(ctx, "begin a session", err)
		err = errors.Join(err, s.cli.Close())
		s.cancel()
		return nil, err
	}
	s.lease, s.ttl = granted.ID, time.Duration(granted.TTL)*time.Second
	s.idleTimeout = s.ttl / 3
	s.root = options.Prefix + "/keys/"
	s.sessionKey = options.Prefix + "/sessions/" + string(s.Session())
	return s, nil
}

// newStore returns a store without connection or session. It calls onPermanentFailure when no connection can ever
// succeed.
func newStore(options Options, onPermanentFailure func()) *Store {
	s := &Store{options: options, conns: newConns(len(options.Endpoints), onPermanentFailure), lost: make(chan struct{})}
	s.keepAlives = keepAliveStream{store: s, lock: make(chan struct{}, 1)}
	s.keyOnce.lock, s.commitFence.lock = make(chan struct{}, 1), make(chan struct{}, 1)
	return s
}

// connect makes the client, which logs in.
func (s *Store) connect(ctx context.Context) error {
	config, err := s.options.TLS.config(s.options.Endpoints)
	if err != nil {
		return err
	}
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	// The client's own context outlives ctx, but ctx cancels the login.
	clientCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	s.cli, err = clientv3.New(clientv3.Config{
		Context:              clientCtx,
		Endpoints:            s.options.Endpoints,
		TLS:                  config,
		Username:             s.options.User,
		Password:             s.options.Password,
		DialTimeout:          s.options.DialTimeout,
		DialKeepAliveTime:    10 * time.Second, // the least that gRPC accepts
		DialKeepAliveTimeout: s.options.OpTimeout,
		DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(s.conns.dial),
			grpc.WithTransportCredentials(&recordingCredentials{TransportCredentials: creds, all: s.conns}),
			grpc.WithConnectParams(connectParams(s.options.OpTimeout)),
		},
		Logger: zap.NewNop(),
	})
	if !stop() && err == nil { // ctx ended just after the login
		err = errors.Join(context.Cause(ctx), s.cli.Close())
	}
	if err != nil {
		cancel()
		return s.explain(ctx, "log in", err)
	}
	s.cancel = cancel
	return nil
}

// hosts returns the endpoints for messages.
func (s *Store) hosts() string {
	var hosts []string
	for _, endpoint := range s.options.Endpoints {
		if u, err := url.Parse(endpoint); err == nil {
			endpoint = u.Host
		}
		hosts = append(hosts, endpoint)
	}
	return strings.Join(hosts, ",")
}

// Session implements coord.Store.
func (s *Store) Session() coord.SessionID {
	return coord.SessionID(strconv.FormatInt(int64(s.lease), 16))
}

// TTL implements coord.Store. It returns the TTL that etcd has granted, which may be longer than requested.
func (s *Store) TTL() time.Duration { return s.ttl }

// Lost implements coord.Store.
func (s *Store) Lost() <-chan struct{} { return s.lost }

// Err implements coord.Store.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// lose records that the session is lost, unless it is already lost, and returns the error.
func (s *Store) lose(why string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = fmt.Errorf("etcd session %s: %s: %w", s.Session(), why, coord.ErrSessionLost)
		close(s.lost)
	}
	return s.err
}

// op returns the context of one request.
func (s *Store) op(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.options.OpTimeout)
}

// leaseEnded asks etcd whether the session's lease has ended.
func (s *Store) leaseEnded(ctx context.Context) (bool, error) {
	ctx, cancel := s.op(ctx)
	defer cancel()
	left, err := s.cli.TimeToLive(ctx, s.lease)
	switch {
	case errors.Is(err, errLeaseGone):
		return true, nil
	case err != nil:
		return false, s.explain(ctx, "query the session's lease", err)
	}
	return left.TTL <= 0, nil
}

// Close implements coord.Store. Later calls do nothing.
func (s *Store) Close(ctx context.Context) error {
	var err error
	s.closing.Do(func() {
		err = s.close(ctx)
	})
	return err
}

func (s *Store) close(ctx context.Context) error {
	alreadyLost := s.Err() != nil
	_ = s.lose("it was closed") // ends watches
	var err error
	if !alreadyLost {
		opCtx, cancel := s.op(ctx)
		defer cancel()
		if _, revokeErr := s.cli.Revoke(opCtx, s.lease); revokeErr != nil && !errors.Is(revokeErr, errLeaseGone) {
			err = s.explain(opCtx, "end the session", revokeErr)
		}
	}
	s.keepAlives.stop()
	defer s.cancel()
	if closeErr := s.cli.Close(); closeErr != nil && err == nil && !errors.Is(closeErr, context.Canceled) {
		err = fmt.Errorf("close the etcd client: %w", closeErr)
	}
	return err
}

// streams returns the client's connection and the options of calls on it.
func (s *Store) streams() (*grpc.ClientConn, []grpc.CallOption) {
	return s.cli.ActiveConnection(), []grpc.CallOption{grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(maxMessage)}
}

// maxMessage is the size limit of an answer: a list of all agents' keys has no smaller limit.
const maxMessage = 1<<31 - 1

// Get implements [coord.Getter]. The store needs it because the member that serves a watch may lag behind the others.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := s.op(ctx)
	defer cancel()
	got, err := s.cli.Get(ctx, s.root+key)
	if err != nil {
		return nil, s.explain(ctx, "read a key", err)
	}
	if len(got.Kvs) == 0 {
		return nil, nil
	}
	return got.Kvs[0].Value, nil
}

// EndSession ends the session of a dead process by revoking its lease. The caller must know that no process of the
// session is left. The options are those of the dead process; DialTimeout bounds the whole call.
//
// It makes one attempt, which may be repeated. A session that has already ended is not an error. Errors are those of
// [Open].
func EndSession(ctx context.Context, options Options, session coord.SessionID) error {
	lease, err := strconv.ParseInt(string(session), 16, 64)
	if err != nil {
		return fmt.Errorf("etcd: %q is not a session id", session)
	}
	if options, err = options.withDefaults(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, options.DialTimeout)
	defer cancel()
	s := newStore(options, cancel)
	s.lease = clientv3.LeaseID(lease)
	if err := s.connect(ctx); err != nil {
		return err
	}
	return s.Close(ctx)
}
