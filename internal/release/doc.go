// Package release builds the files of a release. Each platform gets an archive with the binary, the manual pages and
// the completions, and a Python wheel with the same binary. Linux also has Debian packages, and one container image for
// all its platforms. A file has the checksums of all others. The package does not publish anything.
//
//	Version, DescribeVersion   the version of the source, from git and CHANGELOG.md   (version.go, describe.go)
//	Run                        makes files of some kinds                              (release.go, sources.go)
//	archive, wheel, deb, image the kinds                                              (archive.go, wheel.go, ...)
//
// The output depends only on the source, the version and the date, so that everybody who builds it gets the same
// bytes. The package keeps no state, but concurrent calls must not write to the same folder.
package release
