package rpc

import (
	"fmt"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/rpc/device"
	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
)

// snapshot is one version of the members, and the devices and maps that follow from it. It is immutable.
type snapshot struct {
	view    View
	members map[string]membership.Record // by name
	devices []device.Device              // of this worker
	reverse map[string]device.Map        // by the name of the worker whose map it reverses
}

func newSnapshot(
	self membership.Record, version int64, members []membership.Record, changed <-chan struct{},
) *snapshot {
	r := &snapshot{
		view:    View{Version: version, Changed: changed, Workers: make([]WorkerInfo, len(members))},
		members: make(map[string]membership.Record, len(members)),
	}
	for i, m := range members {
		r.view.Workers[i] = infoOf(m)
		r.members[m.Name] = m
	}
	r.reverse = device.Reverse(self.Name, membership.DeviceWorkers(members))
	r.devices = device.List(self.Devices, self.DeviceMaps, r.reverse)
	return r
}

// outdated reports whether there is a newer version.
func (r *snapshot) outdated() bool {
	select {
	case <-r.view.Changed:
		return true
	default:
		return false
	}
}

// maxShown is the maximum number of names in an error.
const maxShown = 8

// unknownWorker returns the error for a name that no member has.
func (r *snapshot) unknownWorker() error {
	shown := make([]string, 0, maxShown)
	for _, w := range r.view.Workers[:min(len(r.view.Workers), maxShown)] {
		shown = append(shown, w.Name)
	}
	more := ""
	if n := len(r.view.Workers) - len(shown); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Errorf("%w: it has %s%s", ErrUnknownWorker, strings.Join(shown, ", "), more)
}

func infoOf(r membership.Record) WorkerInfo { return WorkerInfo{Name: r.Name, ID: r.ID} }
