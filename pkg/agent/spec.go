package agent

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// DefaultRole is the role of workers whose [WorkerSpec] has none. It is torch's DEFAULT_ROLE.
const DefaultRole = "default"

// WorkerSpec describes this node's workers, like WorkerSpec of torch 2.14
// (torch/distributed/elastic/agent/server/api.py).
type WorkerSpec struct {
	// Role names the workers; one agent runs one role. [New] takes an empty role for [DefaultRole].
	Role string
	// LocalWorldSize is the number of workers on this node. Other nodes may run another number.
	LocalWorldSize int
	// Entrypoint is the program. It is looked up on PATH unless it contains a slash.
	Entrypoint string
	// Args are its arguments. As with torchrun, $local_rank and ${local_rank} are replaced, and $$ becomes $.
	Args []string
	// MaxRestarts is the most restarts after failures. The zero value allows none, like torchrun's --max-restarts; the
	// default of torch's WorkerSpec is 3.
	MaxRestarts int
	// MasterAddr and MasterPort fix the address of the worker store. Empty and 0 leave it to the rendezvous.
	MasterAddr string
	MasterPort int
	// Output controls where the workers' stdout and stderr go.
	Output workerlog.OutputRules
	// PrefixTemplate is the template for the prefix of teed lines. Empty is torchrun's.
	PrefixTemplate string
	// VirtualLocalRank gives every worker LOCAL_RANK=0 and one device, like torchrun's --virtual-local-rank.
	VirtualLocalRank bool
	// XPUs are the GPUs of Intel that workers with a virtual local rank get, by local rank, as ZE_AFFINITY_MASK names
	// them. Nil is for other GPUs.
	XPUs []string
	// CPUs are the CPUs to bind each worker to, by local rank. Nil binds none.
	CPUs [][]int
}

// Validate returns an error that says why the spec cannot be used, or nil.
func (s WorkerSpec) Validate() error {
	switch {
	case s.LocalWorldSize < 1:
		return fmt.Errorf("worker spec: local world size %d: must be at least 1", s.LocalWorldSize)
	case s.Entrypoint == "":
		return errors.New("worker spec: the entrypoint is empty")
	case s.MaxRestarts < 0:
		return fmt.Errorf("worker spec: max restarts %d: must not be negative", s.MaxRestarts)
	case s.XPUs != nil && len(s.XPUs) != s.LocalWorldSize:
		return fmt.Errorf("worker spec: XPUs for %d workers, but there are %d", len(s.XPUs), s.LocalWorldSize)
	case s.CPUs != nil && len(s.CPUs) != s.LocalWorldSize:
		return fmt.Errorf("worker spec: CPUs for %d workers, but there are %d", len(s.CPUs), s.LocalWorldSize)
	}
	return nil
}

// EntrypointName returns the base name of the program, like get_entrypoint_name of torch's WorkerSpec.
func (s WorkerSpec) EntrypointName() string { return filepath.Base(s.Entrypoint) }

// DisplayName returns the name of the job in reports, as in torchrun: the script if the program is Python, else the
// program.
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

// Command returns the command line of one worker.
func (s WorkerSpec) Command(localRank int) []string {
	argv := []string{s.Entrypoint}
	vars := map[string]string{"local_rank": strconv.Itoa(localRank)}
	for _, arg := range s.Args {
		argv = append(argv, workerlog.Substitute(arg, vars))
	}
	return argv
}
