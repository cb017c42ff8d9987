// Package siginfo says who has sent a signal to this process.
//
// os/signal delivers the number of a signal alone. A handler gets more from the kernel, in the siginfo (sigaction(2)):
// the process that has sent the signal and its user, or that the kernel has made it, as for a key at the terminal.
// [Watch] notes that and lets the handler of the Go runtime run as before. A signalfd would not work: it needs signals
// that are blocked in all threads, and the Go runtime does not block them.
//
// It works on Linux on amd64. Elsewhere nothing is known of any signal.
package siginfo
