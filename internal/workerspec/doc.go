// Package workerspec turns the configuration into what one node's workers get: command, environment, CPUs and devices.
//
// It reads the machine and the environment, and reports what the user can correct as *config.UsageError. It starts no
// worker, but may execute nvidia-smi and scontrol. It knows no rendezvous: package agent adds ranks and addresses.
//
// Its functions may be called from any goroutine, except New, CheckEndpoint and ResolveNode, which change the
// configuration.
package workerspec
