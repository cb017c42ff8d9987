package coord

import (
	"errors"
	"strings"
	"unicode"
)

// Role is the purpose of a client. The client itself claims its role. So the role limits the harm of a defect or of a
// session's stolen token. It does not limit a malicious client that knows the secret.
type Role byte

// The roles.
const (
	RoleAgent    Role = iota // takes part in its run
	RoleObserver             // reads its run's keys
	RoleCloser               // requests the end of its run
	RoleMember               // keeps the store together with others; has no session
)

// Claim identifies a client's session: its role and run do not change.
type Claim struct {
	Role    Role
	RunID   string // empty: the client named none
	Session SessionID
}

// Authority decides what the sessions of clients may do. Sessions in the server's process may do everything. Its
// methods are called with the server's lock held and must not block.
type Authority interface {
	// MayCommit returns nil if the session may make this commit, or an error that says what it may not do.
	MayCommit(c Claim, guards []Guard, ops []Op) error
	// MayWatch is MayCommit for a watch of all keys with a prefix.
	MayWatch(c Claim, prefix string) error
}

// ErrDenied means that a session may not write or watch a key.
var ErrDenied = errors.New("coordination store: not allowed")

// maxRunID is the length of the longest run id, in bytes.
const maxRunID = 512

// validRunID reports whether id can be the first part of keys. Slashes separate the parts.
func validRunID(id string) bool {
	return len(id) <= maxRunID && !strings.ContainsFunc(id, func(r rune) bool { return r == '/' || unicode.IsControl(r) })
}

// mayCommit reports whether the session's client may make the commit. server.mu is held.
func (c *conn) mayCommit(r commitRequest) error {
	if c.server.opts.Authority == nil {
		return nil
	}
	return c.server.opts.Authority.MayCommit(c.session.claim(), r.guards, r.ops)
}

// mayWatch is mayCommit for a watch.
func (c *conn) mayWatch(prefix string) error {
	if c.server.opts.Authority == nil {
		return nil
	}
	return c.server.opts.Authority.MayWatch(c.session.claim(), prefix)
}

func (s *session) claim() Claim { return Claim{Role: s.role, RunID: s.runID, Session: s.id} }
