// Package workerspec turns the configuration into what one node's workers get: command, environment, CPUs and devices.
//
// It reads the machine and the environment, and reports as *config.UsageError what the user can correct. It starts
// nothing, and knows no rendezvous: ranks and addresses are added by package agent.
//
// Its functions may be called from any goroutine, except ResolveNode, which changes the configuration.
package workerspec
