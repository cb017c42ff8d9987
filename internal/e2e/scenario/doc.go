// Package scenario has the tests of whole jobs. They run the elasticrun binary on simulated hosts
// (internal/e2e/hosts), which can be the pods of a Kubernetes job, or on the nodes of a Slurm cluster
// (internal/e2e/slurmlab). Workers train with real torch while nodes join, leave and die. The workers record every
// step, and check verifies the record without knowing how the job was disturbed. The benchmarks measure how long a
// job stands still after a disturbance. Workers that misbehave on one machine are in package zoo.
package scenario
