package group

import (
	"errors"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// keeper hands the changes of one server to the replica. It fails for good once the member has another server or none.
type keeper struct {
	m  *Member
	of *serving
}

// maxWrite limits the bytes of one write. The commits in one write are a few MiB, but the end of a session is one write
// with all keys of the session. A frame has room for maxWrite bytes.
const maxWrite = maxFrame / 2

// Write returns when a majority has the edits.
func (k *keeper) Write(edits []coord.Edit) error {
	converted := make([]replica.Edit, len(edits))
	for i, e := range edits {
		converted[i] = replica.Edit(e)
	}
	return k.ask(func(r *replica.Replica) (replica.Ticket, error) { return r.Write(converted) })
}

// Confirm returns when a majority has confirmed that this member leads.
func (k *keeper) Confirm() error { return k.ask((*replica.Replica).Confirm) }

// Failure says why the server ends.
func (k *keeper) Failure() string { return "another node serves it now" }

// Close does nothing: the replica belongs to the member.
func (k *keeper) Close() error { return nil }

// ask makes a request of the replica and waits for its outcome. If the replica has no room for the request, for example
// during a leadership transfer, ask tries again at each tick.
func (k *keeper) ask(request func(*replica.Replica) (replica.Ticket, error)) error {
	outcome := make(chan error, 1)
	var try func()
	try = func() {
		if k.m.serving != k.of {
			outcome <- replica.ErrNotLeading
			return
		}
		k.m.request(request, func(err error) {
			if errors.Is(err, replica.ErrBusy) {
				k.m.retries = append(k.m.retries, try)
				return
			}
			outcome <- err
		})
	}
	k.m.call(try)
	select {
	case err := <-outcome:
		return err
	case <-k.m.done:
		return coord.ErrServerClosed
	}
}
