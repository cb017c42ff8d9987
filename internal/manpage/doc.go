// Package manpage writes the manual pages, from the tables of internal/config and the table of exit codes in
// docs/exit-codes.md. Its functions are pure, and may be called at the same time.
package manpage
