// Package hosts makes several hosts of one machine, for tests of jobs over several
// nodes: network namespaces with an address, a name, a machine id and a hosts file of
// their own, whose cables end in one switch. Cables can be cut, the switch can be
// split, a host can lose its power with all that runs on it, and be made another machine. Files are shared.
// Only tests import it.
//
// It needs root, iproute2 and util-linux; where they are missing the test is skipped
// as by testenv.Missing. Of the machine itself nothing changes but the namespaces'
// names in /run/netns, which carry the test's process id. They and what runs in them
// are gone when the test ends; what a killed test left is removed by the next one.
//
// Commands may run at the same time; all else is for the goroutine of the test, which
// ends with an error of the lab.
package hosts
