// Package rdzv answers one question for an agent: who is in this round, and
// which rank am I?
//
// A [Handler] runs rendezvous for one run id. The agent calls
// [Handler.NextRendezvous] to enter a round and gets a [Round]: its group rank,
// the ranks of its workers, the agents' store and the address of the worker
// store, which listens before the call returns. Between rounds the agent is told
// through [Handler.Changed] that nodes may be waiting; it never has to ask.
//
// Backends are chosen by name from a [Registry]. Two ship here, both for one
// node: "c10d" picks the worker store's address itself, "static" uses the one it
// is given. Decisions ([Assign], [Parameters]) are pure; sockets are confined to
// workerstore.go.
//
// Workers meet in another way, [Schemes]: a URL such as env:// becomes a store, a rank and a world size (seed 003), as with
// torch.distributed, so that workers in Go and in Python can be of one job.
//
// The API of the agents' part follows seed 000. Handlers are safe for concurrent use; NextRendezvous
// itself is called by one goroutine at a time.
package rdzv
