//go:build !linux

package peeruid

import (
	"errors"
	"net"
)

// Finder finds the users of peers. It exists on Linux only.
type Finder struct{}

// New returns an error that is [errors.ErrUnsupported].
func New() (*Finder, error) { return nil, errors.ErrUnsupported }

// Owner is never called, because New makes no Finder.
func (*Finder) Owner(net.Conn) (int, error) { return -1, errors.ErrUnsupported }
