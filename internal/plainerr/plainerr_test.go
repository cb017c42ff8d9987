package plainerr

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

func TestText(t *testing.T) {
	dial := func(no syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", no)}
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{dial(syscall.ECONNREFUSED), "nobody listens there"},
		{fmt.Errorf("more: %w", dial(syscall.EHOSTUNREACH)), "there is no route to that machine, or it is down"},
		{dial(syscall.ETIMEDOUT), "there was no answer in time"},
		{&net.DNSError{Err: "no such host", Name: "head", IsNotFound: true}, `the name "head" is not known to the name service`},
		{&net.DNSError{Err: "i/o timeout", Name: "head", IsTimeout: true}, `the name service has not answered for "head"`},
		{&net.DNSError{Err: "server misbehaving", Name: "head"}, `the name service could not look up "head"`},
		{&exec.Error{Name: "srun", Err: exec.ErrNotFound}, `the program "srun" is not in a folder of PATH`},
		{context.DeadlineExceeded, "there was no answer in time"},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, "there was no answer in time"},
		{net.ErrClosed, "the connection was closed"},
		{errors.New("its own text"), "its own text"},
	} {
		if got := Text(tt.err); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}
