// Package slurmlab makes a Slurm cluster of one machine, for tests of jobs that a
// batch system starts: munged, slurmctld and three slurmd, the ones that a cluster
// runs. The nodes n1 to n3 have two CPUs and an address each. As on many clusters
// their names do not resolve; and they share the machine's host name, so that only
// what Slurm itself says tells them apart. Only tests import it.
//
// It needs root and Debian's slurm-wlm, munge and iproute2; where they are missing the
// test is skipped as by testenv.Missing. The cluster lives in namespaces of its own,
// for processes, mounts and the network, and writes only below one folder of the
// test's. When the first process of the namespaces ends the kernel kills all others,
// so nothing is left, not even by a test that was killed.
//
// Commands may run at the same time; all else is for the goroutine of the test.
package slurmlab
