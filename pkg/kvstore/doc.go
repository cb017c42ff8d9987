// Package kvstore is a key-value store through which the processes of a job find each other. It is torch's Store in
// Go: a Go process and a torch process can share one store.
//
// [Store] is the interface. Four types implement it:
//
//   - [HashStore] keeps its keys in the memory of one process.
//   - [PrefixStore] is a namespace within another store.
//   - [github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore.Client] is a client of a TCPStore server, torch's or this
//     module's.
//   - [github.com/elasticrun/elasticrun/pkg/kvstore/filestore.Store] is a file that several processes share.
//
// [Barrier], [GetAll] and [Synchronize] are the helpers of torch's elastic agents (torch 2.14,
// torch/distributed/elastic/utils/store.py). They work on any Store.
//
// The package is not a database: in a job, a store lives as long as one round and forgets everything with it. It does
// not replicate, and it does not authenticate its clients. The agents of a job coordinate through pkg/coord instead.
//
// # Concurrency
//
// Any number of goroutines may use a Store. A call that blocks ends with its context and does not delay other calls.
package kvstore
