// Package testenv gives tests what they need from this machine and from this checkout: interpreters with a real torch,
// the elasticrun binary, an etcd server, disks that fill up or hang, marks that find a job's processes, waits, and the
// scale of long tests. Only tests import it, and it knows nothing of the packages under test.
//
// A test that needs something that is missing is skipped with the reason. With ELASTICRUN_REQUIRE_ALL=1, which the
// pipeline sets, the test fails instead.
//
// All functions are safe for concurrent use. Each test process builds the binary, and checks an interpreter, at most
// once.
package testenv
