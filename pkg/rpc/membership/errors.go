package membership

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var (
	// ErrShutdown is work that is refused because the group is shutting down, or this worker has left it.
	ErrShutdown = errors.New("the group is shut down")

	// ErrEvicted is the end of a member of a dynamic group that the others have taken for dead.
	ErrEvicted = errors.New("this worker was taken for dead and is no member any more")

	// ErrGone is a member whose process has ended for certain: nobody listens at its address, or another worker does, or it has said so.
	ErrGone = errors.New("the worker's process is gone")
)

// Calls out of their order.
var (
	errJoined    = errors.New("join the group: it was joined before; make another member")
	errNotMember = errors.New("leave the group: it was not joined")
)

// NameError is a worker name that cannot be one; see [CheckName].
type NameError struct{ Name string }

func (e *NameError) Error() string {
	return fmt.Sprintf("worker name %s of %d bytes: use 1 to %d of letters, digits, '-', '_', ':' and '.'", short(e.Name), len(e.Name), maxName)
}

// NameTakenError is a worker whose name another one has.
type NameTakenError struct {
	Name string
	// ID, Host and Address are those of the worker that has it.
	ID            int
	Host, Address string
}

func (e *NameTakenError) Error() string {
	return fmt.Sprintf(
		"worker name %q is taken by the worker with id %d at %s on host %s: give each worker a name of its own, and a group that is started again a new store or another group name",
		e.Name, e.ID, e.Address, e.Host,
	)
}

// RankTakenError is a worker whose rank another one has.
type RankTakenError struct {
	// Worker is the name of the one that is refused.
	Worker string
	Rank   int
	// By, Host and Address are those of the worker that has the rank.
	By, Host, Address string
}

func (e *RankTakenError) Error() string {
	return fmt.Sprintf(
		"worker %q: rank %d is taken by worker %q at %s on host %s: give each worker a rank of its own, and a group that is started again a new store or another group name",
		e.Worker, e.Rank, e.By, e.Address, e.Host,
	)
}

// RankError is a worker whose rank is none of its world.
type RankError struct {
	Worker          string
	Rank, WorldSize int
}

func (e *RankError) Error() string {
	return fmt.Sprintf("worker %q: rank %d: must be at least 0 and below the world size, %d", e.Worker, e.Rank, e.WorldSize)
}

// WorldSizeError is a worker whose world size is not the group's, or cannot be one.
type WorldSizeError struct {
	Worker    string
	WorldSize int // 0 means a dynamic group
	// By is the worker that came first, and Want its world size. Without By, WorldSize itself is wrong.
	By   string
	Want int
}

func (e *WorldSizeError) Error() string {
	if e.By == "" {
		return fmt.Sprintf("worker %q: world size %d: must be at least 1 in a static group", e.Worker, e.WorldSize)
	}
	return fmt.Sprintf("worker %q: %s, but worker %q, which came first, has %s: give all workers of a group the same",
		e.Worker, worldSize(e.WorldSize), e.By, worldSize(e.Want))
}

func worldSize(n int) string {
	if n == 0 {
		return "no world size (a dynamic group)"
	}
	return "world size " + strconv.Itoa(n)
}

// VersionError is a worker that speaks another version than the group.
type VersionError struct {
	Worker  string
	Version int
	// By is the worker that came first, and Want its version.
	By   string
	Want int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("worker %q speaks version %d, but worker %q, which came first, speaks version %d: build all workers of a group with the same elasticrun module",
		e.Worker, e.Version, e.By, e.Want)
}

// SecurityError is a worker with TLS in a group without, or the other way round.
type SecurityError struct {
	Worker string
	// Secure tells that Worker has TLS and By, the worker that came first, has none.
	Secure bool
	By     string
}

func (e *SecurityError) Error() string {
	with, without := e.Worker, e.By
	if !e.Secure {
		with, without = without, with
	}
	return fmt.Sprintf("worker %q has TLS, but worker %q has not: give certificates to all workers of a group, or to none", with, without)
}

// AddressError is a worker whose address is good for nobody, or not for a member on another host.
type AddressError struct {
	Worker, Host, Address string
	// Other is a member on OtherHost, which cannot reach a loopback address here. Without one the address itself is wrong.
	Other, OtherHost string
}

func (e *AddressError) Error() string {
	if e.Other == "" {
		return fmt.Sprintf("worker %q: address %q: want HOST:PORT with a host and a port that others can reach", e.Worker, e.Address)
	}
	return fmt.Sprintf("worker %q on host %s listens on %s, which worker %q on host %s cannot reach: let it listen on an address of its network",
		e.Worker, e.Host, e.Address, e.Other, e.OtherHost)
}

// Step is what a group does together.
type Step string

// The steps in which members can be missing.
const (
	StepJoin  Step = "joined"
	StepReady Step = "become ready" // they have not reached the others
	StepDrain Step = "begun to shut down"
	StepIdle  Step = "finished their work"
)

// MissingError is a step of a static group that did not end in time, because members were missing.
type MissingError struct {
	Step Step
	// Ranks are those of the missing members, in order, and Names their names, "" where not known.
	Ranks     []int
	Names     []string
	WorldSize int
	// Err is the end of the wait.
	Err error
}

func (e *MissingError) Error() string {
	const most = 16
	var b strings.Builder
	b.WriteString("rank")
	if len(e.Ranks) > 1 {
		b.WriteString("s")
	}
	for i, rank := range e.Ranks[:min(len(e.Ranks), most)] {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(" " + strconv.Itoa(rank))
		if i < len(e.Names) && e.Names[i] != "" {
			fmt.Fprintf(&b, " (%s)", e.Names[i])
		}
	}
	if more := len(e.Ranks) - most; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return fmt.Sprintf("of %d workers these have not %s: %s: see what became of them, or wait longer: %v", e.WorldSize, e.Step, b.String(), e.Err)
}

func (e *MissingError) Unwrap() error { return e.Err }

// FailedError is a group that did not form because one of its members has given up.
type FailedError struct {
	// By is the name of that member and ID its rank.
	By string
	ID int
	// Text is that of its error.
	Text string
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("the group did not form, as worker %q (rank %d) has given up: %s: start it again with a new store or another group name",
		e.By, e.ID, e.Text)
}

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

// short quotes what may be long.
func short(s string) string {
	const most = 40
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
