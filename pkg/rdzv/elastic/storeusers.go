package elastic

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/elasticrun/elasticrun/internal/peeruid"
	"github.com/elasticrun/elasticrun/internal/userdir"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

// StoreUsers says which users may meet at stores that only this machine can reach: this user, root, and those named
// here. Such a store serves only their processes, and agents without a secret use only a store of theirs. A nil
// StoreUsers names nobody. Only Linux reports whose a connection is; elsewhere everybody is served.
type StoreUsers struct {
	// Anybody turns the check off.
	Anybody bool
	// IDs are the numbers of further users.
	IDs []int

	once   sync.Once
	finder *peeruid.Finder
	err    error

	mu      sync.Mutex
	refused error // what Refused returns
}

// PeerUserError says that the kernel does not report which user owns a connection.
type PeerUserError struct{ Err error }

func (e *PeerUserError) Error() string {
	return fmt.Sprintf("the kernel does not tell which user's process connects to a store on this machine: %v; "+
		"--store-users=any serves every user", e.Err)
}

// Unwrap returns the kernel's errors.
func (e *PeerUserError) Unwrap() error { return e.Err }

// Admission returns the Accept of [tcpstore.ServerOptions] for a store on ln, or nil if the store serves everybody:
// other machines can reach ln, and the job has more than one node. The error is a *PeerUserError.
func (u *StoreUsers) Admission(ln net.Listener, oneNode bool) (func(net.Conn) error, error) {
	if !oneNode && machine.IsReachable(ln.Addr()) {
		return nil, nil
	}
	return u.admission()
}

// admission is Admission for a store that only this machine can reach.
func (u *StoreUsers) admission() (func(net.Conn) error, error) {
	u = cmp.Or(u, &StoreUsers{})
	if u.Anybody {
		return nil, nil
	}
	u.once.Do(func() { u.finder, u.err = peeruid.New() })
	switch {
	case errors.Is(u.err, errors.ErrUnsupported):
		return nil, nil
	case u.err != nil:
		return nil, &PeerUserError{u.err}
	}
	return func(c net.Conn) error {
		err := u.admit(u.finder.Owner(c))
		if err != nil && !errors.Is(err, io.EOF) {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.refused = err
		}
		return err
	}, nil
}

// Refused returns why a store has refused a connection because of its user: the last one, or nil if there was none.
func (u *StoreUsers) Refused() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.refused
}

// admit decides about a connection by what Owner returned for it.
func (u *StoreUsers) admit(user int, err error) error {
	switch {
	case errors.Is(err, peeruid.ErrEnded):
		return io.EOF
	case errors.Is(err, peeruid.ErrElsewhere), errors.Is(err, peeruid.ErrUnmapped):
		return fmt.Errorf("%w; --store-users=any serves every user", err)
	case err != nil:
		return fmt.Errorf("find the user of the connection: %w", err)
	case u.trusts(user):
		return nil
	}
	return fmt.Errorf("its process is user %d's, and the store serves %s; --store-users=%s serves this one too", user,
		u, u.with(user))
}

// verification returns the [coord.DialOptions.Verify] of an agent without a secret for a store at addr. It is nil if
// addr is not a loopback address, since other machines may have it, or if nothing can or need be verified.
func (u *StoreUsers) verification(addr netip.Addr) (func(net.Conn) error, error) {
	u = cmp.Or(u, &StoreUsers{})
	if !addr.Unmap().IsLoopback() {
		return nil, nil
	}
	if admit, err := u.admission(); admit == nil {
		return nil, err
	}
	return func(c net.Conn) error {
		user, err := u.finder.Owner(c)
		switch {
		case err != nil:
			return fmt.Errorf("it is not known which user's store is there: %w; --store-users=any accepts every user's", err)
		case !u.trusts(user):
			return fmt.Errorf("the store there is user %d's, and this agent accepts one of %s; --store-users=%s accepts this "+
				"one too, and so does a secret that both know", user, u, u.with(user))
		}
		return nil
	}, nil
}

func (u *StoreUsers) trusts(user int) bool {
	return userdir.Trusted(user) || slices.Contains(u.IDs, user)
}

// String names the users in words.
func (u *StoreUsers) String() string {
	all := append([]int{os.Geteuid()}, u.IDs...)
	if all[0] != 0 {
		all = slices.Insert(all, 0, 0)
	}
	names := make([]string, len(all))
	for i, id := range all {
		names[i] = strconv.Itoa(id)
	}
	if len(names) == 1 {
		return "user " + names[0]
	}
	last := len(names) - 1
	return "users " + strings.Join(names[:last], ", ") + " and " + names[last]
}

// with returns the value of --store-users that also names user.
func (u *StoreUsers) with(user int) string {
	var all []string
	for _, id := range append(slices.Clone(u.IDs), user) {
		all = append(all, strconv.Itoa(id))
	}
	return strings.Join(all, ",")
}
