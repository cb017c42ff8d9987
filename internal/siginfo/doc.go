// Package siginfo says who has sent a signal to this process.
//
// os/signal delivers the number of a signal alone. A handler gets more from the kernel, in the siginfo (sigaction(2)):
// the process that has sent it and its user, or that the kernel has made it, as for a key at the terminal. [Watch]
// notes that and lets the handler of the Go runtime run as before. A signalfd would not do: it needs signals that are
// blocked in all threads, which the Go runtime does not do.
//
// It works on Linux on amd64. Elsewhere nothing is known of any signal.
package siginfo
