//go:build !linux

package limits

// Check finds no problem: the limits are not known here.
func (Need) Check() (problem string) { return "" }

// ExplainFork returns err.
func ExplainFork(err error) error { return err }
