//go:build !linux

package userdir

// userMap returns "": there are no user namespaces.
func userMap() string { return "" }
