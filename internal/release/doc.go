// Package release builds the files of a release. Each platform gets an archive with the binary, the manual pages and
// the completions, and a Python wheel with the same binary. A file has the checksums of all others. The package does
// not publish anything.
//
// The output depends only on the source, the version and the date, so that everybody who builds it gets the same
// bytes. The package keeps no state, but concurrent calls must not write to the same folder.
package release
