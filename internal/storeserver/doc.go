// Package storeserver is elasticrun store: one TCP port with a TCPStore for workers and a coordination store for
// agents, the leaders of the agents' runs, and an HTTP health check.
//
//	Serve           runs it all until a context ends      (server.go)
//	coordination    the agents' store and the leaders     (coordination.go)
//	memoryShares    divides --max-memory                  (memory.go)
//	health          GET /healthz                          (health.go)
//	feedWatchdog    the service manager's watchdog        (watchdog.go)
//
// The package starts no worker and takes part in no job. Serve may run once in a process, because it limits the heap of
// the whole process.
package storeserver
