//go:build !linux

package stacks

// kernelState returns "sleeping": this system does not say more.
func kernelState(int) (state, wait string) { return "sleeping", "" }

func processName(int) string { return "" }

func descendants(pid, _ int) []int { return []int{pid} }

// KernelWait returns "": this system does not say.
func KernelWait(int) string { return "" }
