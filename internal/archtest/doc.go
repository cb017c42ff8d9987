// Package archtest has the tests of the code's structure: which package may import which, how long a file may be, which
// words an identifier may contain, who may end the process, and whether the pages name things that exist.
// docs/architecture.md shows the packages; the tests check the table in rules_test.go.
//
// The tests parse the source for all platforms and compile nothing.
package archtest
