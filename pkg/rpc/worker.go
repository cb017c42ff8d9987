package rpc

import (
	"context"
	"fmt"

	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

// WorkerInfo identifies a member of a group.
type WorkerInfo struct {
	// Name is unique in the group.
	Name string
	// ID is the rank in a static group. In a dynamic group it counts joins; no ID is used twice.
	ID int
}

// String returns "worker1 (id 1)".
func (w WorkerInfo) String() string { return fmt.Sprintf("%s (id %d)", w.Name, w.ID) }

// View is the members of a group at one time. The caller must not change it.
type View struct {
	// Version counts the changes of the group.
	Version int64
	// Workers are the members, sorted by ID.
	Workers []WorkerInfo
	// Changed is closed when there is a newer view. It is nil in a static group, which never changes.
	Changed <-chan struct{}
}

// Agent is the membership of a worker in a group, as a backend implements it. Its methods are safe for concurrent use.
type Agent interface {
	// Self returns this worker.
	Self() WorkerInfo
	// View returns the members that this worker currently knows.
	View() View
	// Devices returns the devices of this worker, its device maps by target worker, and the reverse of the maps that
	// other workers have for this worker, by worker. The caller must not change the results.
	Devices() (own []device.Device, maps, reverse map[string]device.Map)
	// Invoke runs a function on the worker named to and returns its answer.
	Invoke(ctx context.Context, to, function string, payload []byte) ([]byte, error)
	// Shutdown ends the membership. If graceful, it waits until ctx ends or no calls are outstanding: of any member of
	// a static group, or of this member of a dynamic group.
	Shutdown(ctx context.Context, graceful bool) error
	// Done returns a channel that is closed when this worker is no longer a member.
	Done() <-chan struct{}
}
