// Package exitcode has the reasons for which the launcher exits, and the rules by which --exit-code-map replaces its
// exit code. Package main (cmd/elasticrun/ending.go) chooses the code and the reason.
//
// Everything is pure and may be called concurrently.
package exitcode
