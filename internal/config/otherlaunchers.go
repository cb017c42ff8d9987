package config

import "slices"

// foreignFlag is a flag of other launchers that elasticrun does not have.
type foreignFlag struct {
	names  []string // without dashes at the start, in the dashed spelling
	advice string
}

// foreignFlags returns the flags of other launchers that people give out of habit, and what to give in their place.
func foreignFlags() []foreignFlag {
	return []foreignFlag{
		{ // accelerate, deepspeed, mpirun, srun, horovodrun
			[]string{
				"n", "np", "num-processes", "num-procs", "num-gpus", "num-workers", "nproc", "ngpus", "gpus", "ntasks",
				"ntasks-per-node", "gpus-per-node", "procs-per-node", "ppn",
			},
			"--nproc-per-node is the number of workers on each node, --nnodes that of nodes",
		},
		{[]string{"N", "nodes", "num-nodes", "num-machines"}, "--nnodes is the number of nodes"},
		{[]string{"machine-rank"}, "--node-rank is the rank of this node"},
		{[]string{"main-process-ip", "master-ip", "main-process-addr"}, "--master-addr is the address of node rank 0"},
		{[]string{"main-process-port"}, "--master-port is the port of the workers' store"},
		{
			[]string{"H", "host", "hosts", "hostfile", "machinefile", "include", "exclude"},
			"elasticrun has no list of hosts: run the same command on every node, with --rdzv-endpoint=HOST",
		},
		{[]string{"job-id", "run-id"}, "--rdzv-id is the run id"},
		{
			[]string{"rdzv-timeout", "rendezvous-timeout", "join-timeout", "rdzv-join-timeout", "timeout"},
			"--rdzv-conf=join_timeout=SECONDS is how long a node waits for the others",
		},
		{[]string{"python", "python-executable", "python-exec"}, "the variable PYTHON_EXEC names the interpreter"},
	}
}

// foreignAdvice returns what to give in place of another launcher's flag, or "".
func foreignAdvice(name string) string {
	for _, f := range foreignFlags() {
		if slices.Contains(f.names, name) {
			return f.advice
		}
	}
	return ""
}

// misplacedFlags are the flags that a warning names when they follow the script: names that scripts hardly have.
func misplacedFlags() []string {
	return []string{
		"nnodes", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "standalone", "max-restarts",
		"no-python",
	}
}
