// Package etcd implements the coordination store, coord.Store, in an etcd cluster of version 3.4 or later. It is not a
// general etcd client: it offers only what package coord defines. A Store is safe for concurrent use.
//
// A session is an etcd lease; its id is the lease's id in hexadecimal. A commit is one transaction whose guards compare
// create-revisions. The store uses these keys below Options.Prefix:
//
//	PREFIX/keys/KEY                 the store's keys
//	PREFIX/sessions/LEASE           exists with the session's lease, once the session commits without owned puts
//	PREFIX/sessions/LEASE/turn/N    exists with the session's lease, after a commit with an unknown outcome
//
// The etcd client makes the requests, renews tokens and chooses endpoints. This package implements two things itself,
// on streams of the client's connection, because the client's own functions do not fit:
//
//   - The client's KeepAliveOnce opens a stream for each call. With a password, the server checks the password for
//     each stream, which is expensive by design. This package keeps one stream open. (If hundreds of agents start at
//     once, prefer certificates to a password all the same: an agent logs in about three times.)
//   - After an interruption, the client's Watch continues from the revision of the last progress notification. Older
//     servers may send that notification ahead of events. This package continues after the last delivered event and
//     uses progress requests only to find out whether the server is alive.
package etcd
