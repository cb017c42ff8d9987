package membership

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var (
	// ErrShutdown is returned for work that is refused because the group is shutting down or this worker has left it.
	ErrShutdown = errors.New("the group is shut down")

	// ErrEvicted is returned to a member of a dynamic group that the other members found dead and evicted.
	ErrEvicted = errors.New("the other members found this worker dead and evicted it")

	// ErrGone proves that a member's process has ended: nobody listens at its address, another worker listens there, or
	// the process itself says that it is shutting down.
	ErrGone = errors.New("the worker's process is gone")
)

// These errors report calls in the wrong order.
var (
	errJoined    = errors.New("join the group: already joined; use a new Dynamic")
	errNotMember = errors.New("leave the group: not joined")
)

// NameError reports an invalid worker name; see [CheckName].
type NameError struct{ Name string }

func (e *NameError) Error() string {
	return fmt.Sprintf("worker name %s of %d bytes: use 1 to %d of letters, digits, '-', '_', ':' and '.'",
		short(e.Name), len(e.Name), maxName)
}

// NameTakenError reports that another worker has the same name.
type NameTakenError struct {
	Name string
	// ID, Host and Address describe the worker that has the name.
	ID            int
	Host, Address string
}

func (e *NameTakenError) Error() string {
	return fmt.Sprintf(
		"worker name %q is taken by the worker with id %d at %s on host %s: give each worker its own name, "+
			"and a restarted group a new store or another group name",
		e.Name, e.ID, e.Address, e.Host,
	)
}

// RankTakenError reports that another worker has the same rank.
type RankTakenError struct {
	// Worker is the name of the refused worker.
	Worker string
	Rank   int
	// By, Host and Address describe the worker that has the rank.
	By, Host, Address string
}

func (e *RankTakenError) Error() string {
	return fmt.Sprintf(
		"worker %q: rank %d is taken by worker %q at %s on host %s: give each worker its own rank, "+
			"and a restarted group a new store or another group name",
		e.Worker, e.Rank, e.By, e.Address, e.Host,
	)
}

// RankError reports a rank outside the world.
type RankError struct {
	Worker          string
	Rank, WorldSize int
}

func (e *RankError) Error() string {
	return fmt.Sprintf("worker %q: rank %d: must be at least 0 and below the world size, %d",
		e.Worker, e.Rank, e.WorldSize)
}

// WorldSizeError reports a world size that is invalid or differs from the group's.
type WorldSizeError struct {
	Worker    string
	WorldSize int // 0 means a dynamic group
	// By is the worker that came first, and Want its world size. If By is empty, WorldSize itself is invalid.
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

// VersionError reports that a worker's protocol version differs from the group's.
type VersionError struct {
	Worker  string
	Version int
	// By is the worker that came first, and Want its version.
	By   string
	Want int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("worker %q speaks version %d, but worker %q, which came first, speaks version %d: "+
		"build all workers of a group with the same elasticrun module",
		e.Worker, e.Version, e.By, e.Want)
}

// SecurityError reports that some workers of a group use TLS and others do not.
type SecurityError struct {
	Worker string
	// Secure reports that Worker uses TLS and By, the worker that came first, does not. If false, it is the reverse.
	Secure bool
	By     string
}

func (e *SecurityError) Error() string {
	with, without := e.Worker, e.By
	if !e.Secure {
		with, without = without, with
	}
	return fmt.Sprintf("worker %q has TLS, but worker %q has not: "+
		"give certificates to all workers of a group, or to none",
		with, without)
}

// AddressError reports an address that is invalid, or that a member on another host cannot reach.
type AddressError struct {
	Worker, Host, Address string
	// Other is a member on OtherHost, which cannot reach the loopback address. If Other is empty, the address is
	// invalid.
	Other, OtherHost string
}

func (e *AddressError) Error() string {
	if e.Other == "" {
		return fmt.Sprintf("worker %q: address %q: want HOST:PORT with a host and a port that others can reach",
			e.Worker, e.Address)
	}
	return fmt.Sprintf("worker %q on host %s listens on %s, which worker %q on host %s cannot reach: "+
		"let it listen on an address of its network",
		e.Worker, e.Host, e.Address, e.Other, e.OtherHost)
}

// Step is a step that the members of a group take together.
type Step string

// A MissingError names one of these steps.
const (
	StepJoin  Step = "joined"
	StepReady Step = "become ready" // have called the others
	StepDrain Step = "begun to shut down"
	StepIdle  Step = "finished their work"
)

// MissingError reports that a step of a static group timed out because members were missing.
type MissingError struct {
	Step Step
	// Ranks are the missing members in ascending order. Names are their names, or "" if unknown.
	Ranks     []int
	Names     []string
	WorldSize int
	// Err is the error of the wait.
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
	return fmt.Sprintf("%d of %d workers have not %s: %s: check these workers, or use a longer timeout: %v",
		len(e.Ranks), e.WorldSize, e.Step, b.String(), e.Err)
}

func (e *MissingError) Unwrap() error { return e.Err }

// FailedError reports that a group did not form because one of its members gave up.
type FailedError struct {
	// By is the name of the member that gave up, and ID its rank.
	By string
	ID int
	// Text is the text of that member's error.
	Text string
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("the group did not form because worker %q (rank %d) gave up: %s: "+
		"start it again with a new store or another group name", e.By, e.ID, e.Text)
}

// ConnectionError reports that a join failed because the new member cannot reach a member that is alive. That member
// replied through the store. A new member must reach all members, so the join was undone.
type ConnectionError struct {
	// Name and Address are those of the unreachable member.
	Name, Address string
	// Err is the error of the attempt to reach it.
	Err error
}

// Error implements error.
func (e *ConnectionError) Error() string {
	return fmt.Sprintf("worker %q is alive, but cannot be reached at %s from here: "+
		"check the network between the two hosts, and the worker's address: %v",
		e.Name, e.Address, e.Err)
}

// Unwrap returns Err.
func (e *ConnectionError) Unwrap() error { return e.Err }

// short quotes s and truncates it.
func short(s string) string {
	const most = 40
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
