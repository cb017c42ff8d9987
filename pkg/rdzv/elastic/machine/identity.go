package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Identity distinguishes an agent from all others of its run. An agent that is started again in place of a dead one
// gets the same identity. The agent holds it until Close.
type Identity struct {
	// Host is the machine's host name as the kernel knows it. It need not resolve.
	Host string
	// Name is the value of rounds.Node.Identity: "hint:3/0"; without a hint "machine:HASH/0", or "host:NAME/0" if only the
	// host name is known.
	Name string
	slot io.Closer
}

// Close releases the identity. Another agent of this machine can take it then.
func (i *Identity) Close() error { return i.slot.Close() }

// maxSlots is far above the number of agents that one run can have on a machine.
const maxSlots = 4096

// Identify takes an identity in the run runID. hint is the rank that this node was given, or -1. Several agents of one
// machine may have the same hint.
//
// A name ends with a slot: the lowest number that no other agent of this run and hint holds on this machine. So agents
// that run at the same time have different names, and an agent that replaces a dead one has its name. The kernel
// releases a slot when its holder dies, however that happens.
func Identify(runID string, hint int) (*Identity, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("get the host name: %w", err)
	}
	group, name := "-", unslotted(thisMachine(host), hint)
	if hint >= 0 {
		group = strconv.Itoa(hint)
	}
	n, slot, err := lowestSlot(func(n int) (io.Closer, error) { return TakeSlot(SlotName(runID, group, n)) })
	if err != nil {
		return nil, fmt.Errorf("this agent of run %q gets no number on this machine: %w", runID, err)
	}
	return &Identity{Host: host, Name: fmt.Sprintf("%s/%d", name, n), slot: slot}, nil
}

// unslotted returns a name without its slot: the hint if there is one, else the machine.
func unslotted(machine string, hint int) string {
	if hint >= 0 {
		return "hint:" + strconv.Itoa(hint)
	}
	return machine
}

// PredictIdentity returns the name that Identify would give the first agent of this machine. It takes no identity.
func PredictIdentity(hint int) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("get the host name: %w", err)
	}
	return unslotted(thisMachine(host), hint) + "/0", nil
}

// lowestSlot takes the lowest free slot.
func lowestSlot(take func(n int) (io.Closer, error)) (int, io.Closer, error) {
	for n := range maxSlots {
		slot, err := take(n)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		return n, slot, err
	}
	return 0, nil, fmt.Errorf("all %d are taken by its other agents: %w", maxSlots, syscall.EADDRINUSE)
}

// maxRunIDInName leaves room for the rest of a socket's name, which has at most 107 bytes.
const maxRunIDInName = 48

// SlotName returns the name of a slot. Run ids contain no slash; long ones are hashed.
func SlotName(runID, group string, n int) string {
	if len(runID) > maxRunIDInName {
		runID = shortHash(runID)
	}
	return fmt.Sprintf("elasticrun/%s/%s/%d", runID, group, n)
}

// machineOf returns a name for a machine, or for a part of a machine from which the slots of the other parts are not
// visible. The name is derived from facts that no two machines share, or from the host name if there are none.
func machineOf(host string, facts []string) string {
	if len(facts) == 0 {
		return "host:" + host
	}
	// The host name distinguishes machines that were cloned while they ran: they share everything else.
	return "machine:" + shortHash(strings.Join(append(facts, host), "\n"))
}

// shortHash returns a hash that is short enough to read and long enough to be unique.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
