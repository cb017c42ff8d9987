package procs

import "github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"

// ProcIsOurs reports whether /proc shows the processes of this pid namespace. If not, as below unshare --pid without
// --mount-proc, the pids there are those of other processes, and nothing is to be read of a worker. On other systems
// than Linux it returns true.
func ProcIsOurs() bool { return proctree.ProcIsOurs() }
