// Package status says what an agent and its workers are doing, to whoever looks.
//
//	Snapshot   what one agent knows of itself; its form is described in docs/status.md   (snapshot.go)
//	Board      folds the agent's records into a Snapshot; pure but for a lock              (board.go)
//	Looker     adds what is only asked for while somebody looks: CPU, memory, GPUs, lines  (looker.go, probe.go)
//	Server     serves it over HTTP, as JSON and as metrics                                 (server.go, limit.go, metrics.go)
//	Fetch      asks such a server                                                          (fetch.go)
//	Text       shows the nodes of a job to people                                          (text.go)
//
// A Board and a Looker may be used by any number of goroutines. Nothing here can hold up the agent: a Board only takes notes, and what
// may take long is done by goroutines of the lookers.
package status
