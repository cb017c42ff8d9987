// Package rdzv defines how the agents of a job agree on rounds: which nodes take part, and which rank each node has.
//
// A [Handler] runs the rendezvous of one run id. [Handler.NextRendezvous] enters a round and returns a [Round]: the
// rank of the node, the ranks of its workers, the restarts charged so far, and the address of the worker store. During
// a round, the agent receives from [Handler.Stops] when it must stop its workers, and reports what they do with
// [Handler.Fail], [Handler.Succeed] and [Handler.Leave]. The rendezvous decides once for all nodes whether a failure
// costs a restart, and how the job ends ([Outcome]).
//
// A [Registry] creates handlers by the name of their backend. Package backends has the creators of elasticrun's own
// backends, made of the parts of package elastic; programs may register others (see the examples).
// [Assign] and [Parameters] are pure; only [WorkerStore] uses sockets.
//
// This package is for the agents of nodes. It does not start workers, and Go workers do not use it: they find each
// other by a URL, with package urlrdzv.
//
// The API follows torch 2.14, torch/distributed/elastic/rendezvous/api.py. The methods of a Handler are safe for
// concurrent use, but only one goroutine at a time calls NextRendezvous or Succeed.
package rdzv
