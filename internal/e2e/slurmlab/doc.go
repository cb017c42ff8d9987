// Package slurmlab starts a Slurm cluster on one machine, for tests of jobs that a batch system starts: munged,
// slurmctld and three slurmd. Each of the nodes n1 to n3 has two CPUs, an address and a /dev/shm. As on many clusters
// their names do not resolve. They share the machine's host name, so that only Slurm's own values distinguish them.
// Only tests import this package, and it knows nothing of the jobs that it runs.
//
// It needs root and Debian's slurm-wlm, munge and iproute2; without them testenv.Missing skips the test. The cluster
// runs in process, mount and network namespaces of its own, and writes only below one folder of the test. When the
// first process of the namespaces ends, the kernel kills all others. So nothing is left, even if the test is killed.
//
// Commands may run concurrently. Every other method is for the goroutine of the test.
package slurmlab
