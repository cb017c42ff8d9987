package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticrun/elasticrun/internal/plainerr"
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
	return fmt.Errorf("%s: %w: %w", what, coord.ErrUnavailable, s.explainOutage(context.Cause(ctx), err))
}

// explainOutage explains why a request has failed that may succeed later. cause is the cause of the request's context.
func (s *Store) explainOutage(cause, err error) error {
	last := s.conns.lastFailure()
	canceled := errors.Is(cause, context.Canceled)
	const advice = "check the endpoint, and that etcd runs there"
	switch code := status.Code(err); {
	case canceled, last == nil && cause != nil && !errors.Is(cause, context.DeadlineExceeded):
		return &inWords{fmt.Sprintf("no answer from etcd at %s: %s", s.hosts(), plainerr.Text(cause)), cause}
	case last != nil && (cause != nil || isDeadline(err) || code == codes.Unavailable):
		return &inWords{fmt.Sprintf("no answer from etcd at %s: %v; %s", s.hosts(), last, advice), last}
	case cause != nil || isDeadline(err):
		return &inWords{fmt.Sprintf("no answer from etcd at %s in time; %s", s.hosts(), advice), cmp.Or(cause, err)}
	case code == codes.Unavailable:
		text := fmt.Sprintf("the connection to etcd at %s has failed: %s; %s", s.hosts(), description(err), advice)
		return &inWords{text, err}
	}
	text := fmt.Sprintf("etcd at %s reports: %s; see its log, and etcdctl endpoint health", s.hosts(), description(err))
	return &inWords{text, err}
}

// inWords is an error with a text for people.
type inWords struct {
	text string
	err  error
}

func (e *inWords) Error() string { return e.text }

func (e *inWords) Unwrap() error { return e.err }

// description returns the text of a gRPC error without gRPC's own words, such as "rpc error: code = ... desc = ", which
// may be nested. For any other error it returns the error's text.
func description(err error) string {
	s, ok := status.FromError(err)
	if !ok {
		return plainerr.Text(err)
	}
	const mark = "desc = "
	text := s.Message()
	if i := strings.LastIndex(text, mark); i >= 0 {
		text = text[i+len(mark):]
	}
	return strings.Trim(text, `"`)
}

func isDeadline(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		status.Code(err) == codes.DeadlineExceeded || status.Code(err) == codes.Canceled
}

func (s *Store) refused(what, reason string) error {
	return fmt.Errorf("%s: %w", what, &coord.RefusedError{Addr: s.hosts(), Message: reason})
}
