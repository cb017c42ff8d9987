// Package manpage writes the manual pages. Their content comes from the flag tables of internal/config and from the
// tables of exit codes in docs/exit-codes.md. The package has no texts of its own about single flags. Its functions
// are pure and may be called concurrently.
package manpage
