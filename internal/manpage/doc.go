// Package manpage writes the manual pages. The texts about flags come from the flag tables of internal/config, and the
// exit codes from the tables in docs/exit-codes.md. The functions are pure and may be called concurrently.
package manpage
