package elastic

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

// Identity is how an agent is told from all others of its run, and found again when it was started anew. It is held
// until Close.
type Identity struct {
	// Host is the machine's host name as the kernel has it; it need not resolve.
	Host string
	// Name is for [Node]'s Identity: "hint:3/0", or "machine:HASH/0" without a hint.
	Name string
	slot io.Closer
}

// Close gives the name up, for other agents of this machine to take.
func (i *Identity) Close() error { return i.slot.Close() }

// maxSlots is far beyond the agents of one run that a machine can have.
const maxSlots = 4096

// Identify takes an identity in the run runID. hint is the rank that this node was given, or -1; agents of one machine
// may have the same.
//
// A name ends with a slot: the lowest number that no other agent of this run, with this hint, holds on this machine. So an
// agent that takes the place of a dead one has its name, and those beside each other never have the same.
// The kernel gives the slot free when its holder dies, however that happens.
func Identify(runID string, hint int) (*Identity, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find out the host name: %w", err)
	}
	group, name := "-", unslotted(thisMachine(host), hint)
	if hint >= 0 {
		group = strconv.Itoa(hint)
	}
	n, slot, err := lowestSlot(func(n int) (io.Closer, error) { return takeSlot(slotName(runID, group, n)) })
	if err != nil {
		return nil, fmt.Errorf("tell this agent from others of run %q on this machine: %w", runID, err)
	}
	return &Identity{Host: host, Name: fmt.Sprintf("%s/%d", name, n), slot: slot}, nil
}

// unslotted is a name without its slot: the rank that the node was given, else the machine.
func unslotted(machine string, hint int) string {
	if hint >= 0 {
		return "hint:" + strconv.Itoa(hint)
	}
	return machine
}

// PredictIdentity returns the [Node] identity that the first agent of this machine would take by Identify. It takes nothing.
func PredictIdentity(hint int) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find out the host name: %w", err)
	}
	return unslotted(thisMachine(host), hint) + "/0", nil
}

// lowestSlot takes the lowest slot that is free.
func lowestSlot(take func(n int) (io.Closer, error)) (int, io.Closer, error) {
	for n := range maxSlots {
		slot, err := take(n)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		return n, slot, err
	}
	return 0, nil, fmt.Errorf("all %d slots are taken: %w", maxSlots, syscall.EADDRINUSE)
}

// maxRunIDInName leaves room for the rest in the 107 bytes of a socket's name.
const maxRunIDInName = 48

// slotName names a slot. Run ids hold no slash; long ones are hashed.
func slotName(runID, group string, n int) string {
	if len(runID) > maxRunIDInName {
		runID = shortHash(runID)
	}
	return fmt.Sprintf("elasticrun/%s/%s/%d", runID, group, n)
}

// machineOf names a machine, or a part of one that cannot see the others' slots. The name comes from facts that no two machines
// share, or from the host name where there are none.
func machineOf(host string, facts []string) string {
	if len(facts) == 0 {
		return "host:" + host
	}
	// The host name is for machines that were cloned while they ran, which share everything else.
	return "machine:" + shortHash(strings.Join(append(facts, host), "\n"))
}

// shortHash is short enough for people and long enough to be unique.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
