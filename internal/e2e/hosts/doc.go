// Package hosts simulates several hosts on one machine, for tests of jobs over several nodes. A host is a network
// namespace with an address, a name, a machine id and a hosts file, connected by a cable to one switch. A test cuts
// cables, splits the switch, powers a host off, or reinstalls it with another name. All hosts share the files of the
// machine. Only tests import this package, and it knows nothing of the jobs on the hosts.
//
// It needs root, iproute2 and util-linux; without them testenv.Missing skips the test. On the machine itself only names
// in /run/netns change, which contain the test's process id. The test's cleanup kills everything on the hosts and
// removes the namespaces. The next test removes what a killed test has left.
//
// Commands may run concurrently. Every other method is for the goroutine of the test. On an error it fails the test.
package hosts
