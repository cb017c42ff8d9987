//go:build !race

package testenv

// Race reports whether the test has the race detector. With it, code takes several times as long, and code of a single
// goroutine gains nothing.
const Race = false
