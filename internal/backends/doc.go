// Package backends makes the rendezvous handler that --rdzv-backend names, from the configuration. The creators are
// those of pkg/rdzv/backends. This package adds what only the command has: the guard, its exit notices, and observers.
//
//	New          the handler of one backend, which connects to nothing yet   (backend.go)
//	Open         the handler of this node, with its identity                 (backend.go)
//	exit notices what the guard sends to the store of a killed agent         (exitnotice.go)
//	Visit        an observer's session, for elasticrun status                (visit.go)
//
// All backends run the algorithm of package elastic; they differ in the coordination store and in who hosts it.
// docs/design/rendezvous.md lists the steps to add a backend. The package does not know the agent or the workers.
//
// The functions may be called from any goroutine. A Rendezvous belongs to one goroutine; its handler may be shared.
package backends
