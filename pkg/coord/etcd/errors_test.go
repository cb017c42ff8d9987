package etcd

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// TestExplain checks that errors of gRPC reach users in words that name the endpoint and what to do.
func TestExplain(t *testing.T) {
	t.Parallel()
	gone := errors.New("no rendezvous within 12s; more is allowed")
	for _, tt := range []struct {
		err, cause error
		failed     string // of the connection
		want       string
	}{
		{
			err:  status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: no route"`),
			want: "the connection to etcd at a:1,b:1 has failed: transport: Error while dialing: no route; check the endpoint, and that etcd runs there",
		},
		{
			err:    status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: no route"`),
			failed: "nobody listens there",
			want:   "no answer from etcd at a:1,b:1: nobody listens there; check the endpoint, and that etcd runs there",
		},
		{
			err:  status.Error(codes.DeadlineExceeded, "context deadline exceeded"),
			want: "no answer from etcd at a:1,b:1 in time; check the endpoint, and that etcd runs there",
		},
		{
			err: status.Error(codes.DeadlineExceeded, "context deadline exceeded"), cause: gone,
			want: "no answer from etcd at a:1,b:1: no rendezvous within 12s; more is allowed",
		},
		{
			err: status.Error(codes.Canceled, "context canceled"), cause: context.Canceled, failed: "nobody listens there",
			want: "no answer from etcd at a:1,b:1: it was interrupted",
		},
		{
			err:  status.Error(codes.Internal, "stream terminated by RST_STREAM"),
			want: "etcd at a:1,b:1 reports: stream terminated by RST_STREAM; see its log, and etcdctl endpoint health",
		},
		{
			err:  status.Error(codes.Unavailable, "etcdserver: no leader"),
			want: "etcd at a:1,b:1 reports: etcdserver: no leader; see its log, and etcdctl endpoint health",
		},
	} {
		s := newStore(Options{Endpoints: []string{"http://a:1", "http://b:1"}}, func() {})
		if tt.failed != "" {
			s.conns.record("a:1", errors.New(tt.failed))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		if tt.cause != nil {
			cancel(tt.cause)
		}
		err := s.explain(ctx, "watch", tt.err)
		cancel(nil)
		if want := "watch: the job's store is not available: " + tt.want; err.Error() != want {
			t.Errorf("%v:\n%v, want\n%s", tt.err, err, want)
		}
		if !errors.Is(err, coord.ErrUnavailable) || tt.cause != nil && !errors.Is(err, tt.cause) {
			t.Errorf("%v does not match its cause", err)
		}
	}
	if err := newStore(Options{}, func() {}).explain(t.Context(), "x", rpctypes.ErrGRPCNoLeader); !errors.Is(err, rpctypes.ErrNoLeader) {
		t.Errorf("%v is not etcd's own error", err)
	}
}
