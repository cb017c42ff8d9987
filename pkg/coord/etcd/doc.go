// Package etcd is the coordination store in an etcd cluster, version 3.4 or later.
//
// A session is a lease; its id is the lease's, in hexadecimal. A commit is one transaction, whose guards compare
// create-revisions. Keys lie in etcd under two prefixes of Options.Prefix:
//
//	PREFIX/keys/KEY         the store's keys
//	PREFIX/sessions/LEASE   under the session's lease, where a session has written keys that it does not own
//
// Requests, token renewal and the choice of an endpoint are the etcd client's. Two things are done here, on streams of
// the client's connection, because the client's own ways do not fit:
//
//   - The client's KeepAliveOnce opens a stream each time, and with a password each stream costs the server a
//     password check, which is dear by design. Here one stream stays open. (Where hundreds of agents begin at once,
//     certificates are better than a password all the same: an agent logs in about three times.)
//   - The client's watch goes on by itself after an interruption, from the revision of the last progress
//     notification, which older servers may send ahead of events. Here a watch goes on behind the last event that
//     it told, and asks for progress only to learn whether somebody is there.
package etcd
