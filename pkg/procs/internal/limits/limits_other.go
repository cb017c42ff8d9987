//go:build !linux

package limits

// Check returns "": the limits are not known on this system.
func (Need) Check() (problem string) { return "" }

// ExplainFork returns err unchanged.
func ExplainFork(err error) error { return err }
