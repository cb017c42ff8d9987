// Package certfiles reads the certificates that a site has issued for the agents' connections, and reads them again
// when their files change.
//
//	files.go      the files' names, and what is read from them
//	set.go        the content that is in use; it looks at the files each time it is asked for
//	versions.go   the decision when to read, and what to log: pure functions of the files' stamps
//
// The package does not know how connections use certificates; package coord does. A [Set] may be used from any
// goroutine. It looks at the files in a goroutine of its own, which outlives its caller if a file server hangs. Files
// that nobody asks for are not looked at.
package certfiles
