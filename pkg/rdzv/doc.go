// Package rdzv answers one question for an agent: who is in this round, and
// which rank am I?
//
// A [Handler] runs rendezvous for one run id. The agent calls
// [Handler.NextRendezvous] to enter a round and gets a [Round]: its group rank,
// the ranks of its workers, the restarts charged so far and the address of the
// worker store, which listens before the call returns. While a round runs,
// [Handler.Stops] tells the agent when it is over, and the agent tells what its
// workers do: [Handler.Fail], [Handler.Succeed], [Handler.Leave]. What follows from
// that, a restart that is charged or not, or the job's end ([Outcome]), is decided
// behind the interface, for all nodes alike.
//
// Backends are chosen by name from a [Registry]; package elastic, beneath this one, has those of elasticrun. Decisions
// ([Assign], [Parameters]) are pure; sockets are confined to workerstore.go and the schemes' files.
//
// Workers meet in another way, [Schemes]: a URL such as env:// becomes a store, a rank and a world size (seed 003), as with
// torch.distributed, so that workers in Go and in Python can be of one job.
//
// The API of the agents' part follows seed 000. Handlers are safe for concurrent use; NextRendezvous
// itself is called by one goroutine at a time.
package rdzv
