package agent

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// DefaultRole is the role of workers whose spec names none.
const DefaultRole = "default"

// WorkerSpec is the blueprint of one role's workers on this node (seed 002).
type WorkerSpec struct {
	// Role names the workers; one agent runs one role.
	Role string
	// LocalWorldSize is the number of workers on this node; other nodes may run
	// another number.
	LocalWorldSize int
	// Entrypoint is the program; it is looked up on PATH unless it has a slash.
	Entrypoint string
	// Args are its arguments. $local_rank and ${local_rank} are replaced in each
	// and $$ becomes $, as torchrun does.
	Args []string
	// MaxRestarts is how often the group is restarted after a failure.
	MaxRestarts int
	// MasterAddr and MasterPort fix the address of the worker store; empty and 0
	// leave it to the rendezvous.
	MasterAddr string
	MasterPort int
	// Output says where the workers' stdout and stderr go.
	Output workerlog.OutputRules
	// PrefixTemplate is the template of the prefix of teed lines; empty is
	// torchrun's.
	PrefixTemplate string
	// VirtualLocalRank gives every worker LOCAL_RANK=0 and one device
	// (torchrun's --virtual-local-rank).
	VirtualLocalRank bool
	// CPUs are the CPUs to bind each worker to, by local rank; nil binds none.
	CPUs [][]int
}

// Validate reports what makes the spec unusable.
func (s WorkerSpec) Validate() error {
	switch {
	case s.Role == "":
		return errors.New("worker spec: the role is empty")
	case s.LocalWorldSize < 1:
		return fmt.Errorf("worker spec: local world size %d: must be at least 1", s.LocalWorldSize)
	case s.Entrypoint == "":
		return errors.New("worker spec: the entrypoint is empty")
	case s.MaxRestarts < 0:
		return fmt.Errorf("worker spec: max restarts %d: must not be negative", s.MaxRestarts)
	case s.CPUs != nil && len(s.CPUs) != s.LocalWorldSize:
		return fmt.Errorf("worker spec: CPUs for %d workers of %d", len(s.CPUs), s.LocalWorldSize)
	}
	return nil
}

// EntrypointName is the base name of the program (seed 002,
// get_entrypoint_name).
func (s WorkerSpec) EntrypointName() string { return filepath.Base(s.Entrypoint) }

// DisplayName is what reports call the job, as torchrun does: the script where
// the program is Python, else the program.
func (s WorkerSpec) DisplayName() string {
	if !strings.HasPrefix(s.EntrypointName(), "python") {
		return s.Entrypoint
	}
	for _, arg := range s.Args {
		if !strings.HasPrefix(arg, "-") {
			return arg
		}
	}
	return s.Entrypoint
}

// Command is the complete command of one worker.
func (s WorkerSpec) Command(localRank int) []string {
	argv := []string{s.Entrypoint}
	vars := map[string]string{"local_rank": strconv.Itoa(localRank)}
	for _, arg := range s.Args {
		argv = append(argv, workerlog.Substitute(arg, vars))
	}
	return argv
}
