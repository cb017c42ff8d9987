// Package scenario has the tests of whole jobs: the elasticrun binary on the hosts of
// a lab (internal/e2e/hosts), which may be the pods of a Kubernetes job, or on the nodes of
// a Slurm cluster (internal/e2e/slurmlab), with workers that train with real torch, while
// nodes come, go and die. What the workers have put on record is judged by check, which
// knows nothing of how the job was disturbed. The benchmarks measure how long a job
// stands still then.
package scenario
