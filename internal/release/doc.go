// Package release makes what is handed to users: for each platform an archive with the binary, its manual pages and
// completions, and a Python wheel that carries the same binary; and the checksums of all. Its output depends on the
// source, the version and the date alone, so that who builds it again gets the same bytes.
package release
