// Package scheduler finds out what the environment of a process says about its job: Slurm, Kubernetes, Open MPI,
// another process manager with PMI, or MASTER_ADDR alone. It does not decide anything, because it does not know the
// user's settings.
//
// # Data flow
//
//	environment, host name, /etc/hosts ─adapter─▶ Facts ─internal/config─▶ the settings that the user did not give
//
// Each scheduler has one adapter, a pure function. Every fact carries its source, for messages. Only [NodeAddr] runs a
// program. The package keeps no state, and its functions may be called concurrently.
package scheduler
