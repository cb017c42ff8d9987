package elastic

import (
	"context"
	"errors"
	"fmt"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

// SharedStoreError says that a store that serves any run (elasticrun store) is at the endpoint of a static job, whose
// node of rank 0 must serve the agents and the workers there.
type SharedStoreError struct{ Endpoint string }

func (e *SharedStoreError) Error() string {
	return fmt.Sprintf("a store for any job is at %s, where the node of rank 0 of a static job hosts its own", e.Endpoint)
}

// refuseShared closes the client of a static job's agent and returns a [SharedStoreError] if the client's store serves
// any run.
func (a *C10d) refuseShared(ctx context.Context, e machine.Endpoint, client *coord.Client) error {
	if !a.ServesWorkers {
		return nil
	}
	found, err := coord.Probe(ctx, a.dialOptions(client.Addr(), e.Host))
	if err != nil || found.RunID != "" { // a store that has just gone is found out by the client
		return nil
	}
	return errors.Join(&SharedStoreError{e.String()}, client.Close(ctx))
}
