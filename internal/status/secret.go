package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// secretReply is the reply to GET /secret.
type secretReply struct {
	Secret string `json:"secret"` // empty for none
}

// secretOfRun asks this user's launchers of a run on this machine for the secret of its agents. The secret is empty if
// the run has none, or if no launcher is here. A wrong endpoint does not learn the secret: the store there must prove
// first that it knows it.
func secretOfRun(ctx context.Context, machine jobs.Folders, runID string) config.Secret {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	for _, l := range machine.List(false) {
		if l.RunID != runID {
			continue
		}
		data, err := askLauncher(ctx, l, http.MethodGet, "/secret", "")
		var reply secretReply
		if err == nil && json.Unmarshal(data, &reply) == nil && reply.Secret != "" {
			return rdzvconf.NewSecret(reply.Secret)
		}
	}
	return config.Secret{}
}

// withoutSecret adds advice to the error of a store that demands a secret: on a node of the Slurm job the command of
// this role finds the secret by itself. slurmJob is the job's id; empty for none.
func withoutSecret(err error, role coord.Role, slurmJob string) error {
	refused, ok := errors.AsType[*coord.RefusedError](err)
	if !ok || refused.Reason != coord.ReasonSecret || slurmJob == "" {
		return err
	}
	command := "status"
	if role == coord.RoleCloser {
		command = "stop"
	}
	return fmt.Errorf("%w; on a node of the Slurm job the command finds the secret by itself: "+
		"srun --overlap --jobid=%s --nodes=1 --ntasks=1 elasticrun %s", err, slurmJob, command)
}
