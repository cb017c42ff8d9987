package procs

import "github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"

// ProcIsOurs reports whether /proc shows the processes of this pid namespace. If not, as below unshare --pid without
// --mount-proc, the pids in /proc are those of other processes, so it has no information about workers. On systems
// other than Linux it returns true.
func ProcIsOurs() bool { return proctree.ProcIsOurs() }
