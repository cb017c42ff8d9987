package status

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

const drawn = "0123456789abcdef"

// storeWithSecret returns the port of a store at 127.0.0.1 that demands the secret.
func storeWithSecret(t *testing.T) int {
	t.Helper()
	server := coord.NewServer(coord.ServerOptions{Secret: []byte(drawn), Logger: zerolog.Nop()})
	t.Cleanup(func() { _ = server.Close() })
	return int(netip.MustParseAddrPort(testenv.Serve(t, server.ServeConn)).Port())
}

// launcherWithSecret registers a launcher of the run that knows the secret.
func launcherWithSecret(t *testing.T, machine jobs.Folders, runID string) {
	t.Helper()
	never := func(context.Context, string) error { return errors.New("not asked for") }
	serveLauncher(t, machine, jobs.Launcher{RunID: runID, PID: 7}, rdzvconf.NewSecret(drawn), never)
}

// A command inside a Slurm job uses the secret that the job's launchers on this machine know. Without one there, it
// says where it would find the secret.
func TestVisitWithoutSecret(t *testing.T) {
	const hint = "on a node of the Slurm job the command finds the secret by itself: " +
		"srun --overlap --jobid=12 --nodes=1 --ntasks=1 elasticrun "
	port := storeWithSecret(t)
	for _, tt := range []struct {
		name     string
		launcher string // its run id; empty for none
		slurmJob string
		inferred bool
		role     coord.Role
		own      config.Secret
		want     string // end of the error; empty for none
	}{
		{name: "a launcher here", launcher: "slurm-12.0", slurmJob: "12", inferred: true, role: coord.RoleObserver},
		{name: "an endpoint given", launcher: "slurm-12.0", slurmJob: "12", role: coord.RoleCloser},
		{name: "a run id given", launcher: "slurm-12.0", inferred: true, role: coord.RoleCloser},
		{name: "the user's secret", slurmJob: "12", own: rdzvconf.NewSecret(drawn), role: coord.RoleObserver},
		{name: "status elsewhere", slurmJob: "12", inferred: true, role: coord.RoleObserver, want: hint + "status"},
		{name: "stop elsewhere", slurmJob: "12", role: coord.RoleCloser, want: hint + "stop"},
		{name: "another run here", launcher: "slurm-12.1", slurmJob: "12", role: coord.RoleObserver, want: hint + "status"},
		{name: "no scheduler", launcher: "slurm-12.0", role: coord.RoleObserver, want: "give the agent the store's secret, by --rdzv-secret-file=FILE or PET_RDZV_SECRET"},
		{
			name: "a wrong secret", launcher: "slurm-12.0", slurmJob: "12", own: rdzvconf.NewSecret("another"),
			role: coord.RoleObserver, want: "give both the same secret, by --rdzv-secret-file=FILE or PET_RDZV_SECRET",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			machine := jobs.Folders{t.TempDir()}
			if tt.launcher != "" {
				launcherWithSecret(t, machine, tt.launcher)
			}
			target := config.Target{RunID: "slurm-12.0", SlurmJob: tt.slurmJob, Rendezvous: config.Rendezvous{
				Backend: rdzv.BackendC10d, Endpoints: []config.HostPort{{Host: "127.0.0.1", Port: port}}, Ports: []int{1, port}, // nobody listens at 1
				Secret: tt.own,
			}}
			if tt.own.Reveal() == "another" {
				target.Rendezvous.Ports = []int{port} // of several ports, others may belong to other jobs
			}
			if tt.inferred {
				target.Inferred = &config.InferredTarget{}
			}
			_, leave, err := visit(t.Context(), tt.role, &target, machine, "v")
			if err == nil {
				leave()
			}
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasSuffix(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			refused, ok := errors.AsType[*coord.RefusedError](err)
			if err != nil && (!ok || refused.Reason != coord.ReasonSecret) {
				t.Errorf("no refusal: %v", err)
			}
		})
	}
}
