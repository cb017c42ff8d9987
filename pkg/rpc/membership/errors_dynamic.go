package membership

import (
	"errors"
	"fmt"
)

// ConnectionError is a join that failed because the new member cannot reach one that lives, as the store has shown: a member that is not reached by
// all is of no use to the group. The join was taken back.
type ConnectionError struct {
	// Name and Address are those of the member that was not reached.
	Name, Address string
	// Err is what reaching it ended with.
	Err error
}

// Error implements error.
func (e *ConnectionError) Error() string {
	return fmt.Sprintf("worker %q lives, but cannot be reached at %s from here: check the network between the two, and the address it has told: %v",
		e.Name, e.Address, e.Err)
}

// Unwrap returns Err.
func (e *ConnectionError) Unwrap() error { return e.Err }

// Calls out of their order.
var (
	errJoined    = errors.New("join the group: it was joined before; make another member")
	errNotMember = errors.New("leave the group: it was not joined")
)
