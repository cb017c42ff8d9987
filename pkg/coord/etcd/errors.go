package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// errLeaseGone is etcd's error for a lease that has ended.
var errLeaseGone = rpctypes.ErrLeaseNotFound

// explain maps the error of a request to an error of package coord. A RefusedError will not pass by itself: wrong
// credentials, a bad certificate or a missing permission. Every other error is ErrUnavailable.
func (s *Store) explain(ctx context.Context, what string, err error) error {
	err = rpctypes.Error(err) // a well-known error, if the server has sent it
	switch {
	case errors.As(err, new(*coord.RefusedError)):
		return err
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return s.refused(what, fmt.Sprintf("user %q or its password is wrong", s.options.User))
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return s.refused(what, "it requires a user and a password")
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return s.refused(what, fmt.Sprintf("user %q may not read and write the keys below %q",
			s.options.User, s.options.Prefix+"/"))
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("%s: %w: %w; see its --max-txn-ops and --max-request-bytes", what, coord.ErrTooLarge, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%s: %w: %w: compact and defragment it, then disarm its alarm", what, coord.ErrUnavailable, err)
	}
	if refusal := s.conns.permanentFailure(); refusal != "" {
		return s.refused(what, refusal)
	}
	if cause := context.Cause(ctx); cause != nil || isDeadline(err) {
		if last := s.conns.lastFailure(); last != nil && !errors.Is(cause, context.Canceled) {
			return fmt.Errorf("%s: %w: no answer from etcd at %s: %w", what, coord.ErrUnavailable, s.hosts(), last)
		}
		if cause == nil {
			cause = err
		}
		return fmt.Errorf("%s: %w: no answer from etcd at %s: %w", what, coord.ErrUnavailable, s.hosts(), cause)
	}
	return fmt.Errorf("%s: %w: %w", what, coord.ErrUnavailable, err)
}

func isDeadline(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		status.Code(err) == codes.DeadlineExceeded || status.Code(err) == codes.Canceled
}

func (s *Store) refused(what, reason string) error {
	return fmt.Errorf("%s: %w", what, &coord.RefusedError{Addr: s.hosts(), Message: reason})
}
