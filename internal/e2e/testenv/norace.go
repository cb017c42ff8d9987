//go:build !race

package testenv

// Race reports whether the test runs with the race detector. The detector makes code several times slower, and finds
// nothing in code of a single goroutine.
const Race = false
