//go:build !linux

package siginfo

func commandOf(int) (name, command string) { return "", "" }
