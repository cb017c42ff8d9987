// Package plainerr puts errors of the network and of the system in words for people. Go's own texts, such as "dial tcp
// 10.0.0.1:29400: connect: connection refused", name calls that a user has never made.
package plainerr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
)

// Text returns err in words, one line. An error that is not known keeps its own text. The result does not repeat the
// address or the file: the caller's message has it.
func Text(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return lookupText(dns)
	}
	if missing, ok := errors.AsType[*exec.Error](err); ok && errors.Is(err, exec.ErrNotFound) {
		return fmt.Sprintf("the program %q is not in a folder of PATH", missing.Name)
	}
	if no, ok := errors.AsType[syscall.Errno](err); ok && texts[no] != "" {
		return texts[no]
	}
	var timeout interface{ Timeout() bool }
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return "there was no answer in time"
	case errors.Is(err, context.Canceled):
		return "it was interrupted"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "the connection was closed"
	}
	return err.Error()
}

// texts has the words for errors of the system.
var texts = map[syscall.Errno]string{
	syscall.ECONNREFUSED:  "nobody listens there",
	syscall.ETIMEDOUT:     "there was no answer in time",
	syscall.EHOSTUNREACH:  "there is no route to that machine, or it is down",
	syscall.ENETUNREACH:   "there is no route to that network",
	syscall.ECONNRESET:    "the other side has closed the connection",
	syscall.EPIPE:         "the other side has closed the connection",
	syscall.EADDRINUSE:    "the port is in use",
	syscall.EADDRNOTAVAIL: "this machine does not have that address",
	syscall.EACCES:        "permission is denied",
	syscall.EPERM:         "it is not permitted; a firewall may forbid it",
	syscall.ENOENT:        "there is no such file",
	syscall.EMFILE:        "this process has too many open files (ulimit -n)",
	syscall.ENFILE:        "this machine has too many open files",
}

// lookupText says why a host name has no address.
func lookupText(err *net.DNSError) string {
	switch {
	case err.IsNotFound:
		return fmt.Sprintf("the name %q is not known to the name service", err.Name)
	case err.IsTimeout:
		return fmt.Sprintf("the name service has not answered for %q", err.Name)
	}
	return fmt.Sprintf("the name service could not look up %q", err.Name)
}
