// Package archtest holds the tests of the code's shape: which package may import
// which, how long a file may be, and who may end the process. docs/architecture.md
// gives the picture; the table in imports_test.go is what is checked.
//
// The tests read the source of all platforms; nothing is compiled.
package archtest
