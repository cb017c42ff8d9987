package rpc

import (
	"context"
	"fmt"

	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

// WorkerInfo names a member of a group.
type WorkerInfo struct {
	// Name is unique in the group.
	Name string
	// ID is the rank in a static group. In a dynamic one it is the number under which the worker joined; none is given twice.
	ID int
}

// String returns "worker1 (id 1)".
func (w WorkerInfo) String() string { return fmt.Sprintf("%s (id %d)", w.Name, w.ID) }

// View is who was in a group at some time. What it holds is not to be changed.
type View struct {
	// Version counts the changes of the group.
	Version int64
	// Workers are the members, by their ids.
	Workers []WorkerInfo
	// Changed is closed when there is a newer view. It is nil in a static group, whose members never change.
	Changed <-chan struct{}
}

// Agent is a worker's part in a group, made by a backend. Its methods may be called concurrently.
type Agent interface {
	// Self is this worker.
	Self() WorkerInfo
	// View returns the members as this worker knows them now.
	View() View
	// Devices returns the devices of this worker, its device maps by their targets' names, and what goes back to whom: by
	// worker, which of this one's devices answers to which of theirs. What it returns is not to be changed.
	Devices() (own []device.Device, maps, reverse map[string]device.Map)
	// Invoke has the worker of that name run a function on the payload and returns its answer.
	Invoke(ctx context.Context, to, function string, payload []byte) ([]byte, error)
	// Shutdown ends this worker's part. A graceful one waits, as long as ctx lasts, until no member of a static
	// group has calls outstanding, or until this one of a dynamic group has none.
	Shutdown(ctx context.Context, graceful bool) error
	// Done is closed when this worker is no member any more.
	Done() <-chan struct{}
}
