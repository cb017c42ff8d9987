// Package coord is the agents' coordination store: a small linearizable key-value store with revisions, sessions,
// guarded commits and watches.
//
//   - A key may belong to a session. The store deletes a session's keys when the session ends.
//   - A commit applies all its writes or none. Its guards compare create-revisions of keys.
//   - A watch delivers every change below a prefix, in order. After a gap it delivers the whole state as a Resync.
//
// [Store] is the interface that the rendezvous uses. [Client] implements it over TCP, for a [Server]; [Server.Local]
// implements it in the server's process; package etcd below this one implements it in an etcd cluster. Package
// coordtest has the conformance tests of the interface.
//
// The package is not for the workers: they use the TCPStore of package kvstore. It is not a database either: all keys
// of a store must fit in memory, and a commit has at most [MaxOps] ops and [MaxCommit] bytes.
//
// # Parts
//
//	Store      the interface, its errors, and what a client may do
//	           (store.go, errors.go, authority.go)
//	core       the state: commits, sessions, watches and memory limits. It is pure; time is an argument.
//	           (core.go, corewatch.go, timers.go, index.go, budget.go)
//	Server     connections, the clock and Local, a Store in the server's process
//	           (server.go, conn.go, serverhandshake.go, local.go, inflight.go, pending.go, refusals.go, stats.go)
//	journal    the changes that must survive the process, and the goroutine that hands them to a keeper
//	           (journal.go, keeper.go)
//	disk       the keeper that OpenServer adds to NewServer: a file (disk.go)
//	Client     a Store on a remote Server; it has one connection and replaces it when it breaks
//	           (client.go, clientconn.go, clientwatch.go, clientaddrs.go, clientsearch.go, attempts.go, addressplan.go,
//	           dial.go, probe.go, endsession.go)
//	protocol   frames, their fields, the handshake, and TLS
//	           (wire.go, fields.go, handshake.go, elsewhere.go, secure.go, certificates.go, handshakelimit.go)
//	members    connections between processes that keep one store together, for package group (member.go)
//
// # Sessions
//
// A session ends TTL after its last keep-alive. Neither a commit nor an open connection extends it: they do not prove
// that the agent's main loop still runs. A session ends earlier if its client ends it, or if another process with the
// session's token calls [EndSession] because the client's process has died.
//
// A broken connection does not end a session: a firewall or a proxy may have closed it while the process lives. A
// connection that resumes a session takes it over from an older connection.
//
// If a server did not run for a while, because its process or machine was stopped, it extends all sessions and TTLs by
// that pause: it could not receive keep-alives.
//
// # Concurrency
//
// All exported types are safe for concurrent use.
//
// A Server has one mutex and a Client has one mutex. Nobody takes one while holding the other, and nobody waits for a
// network, a disk or a caller while holding one. The wake function of a watcher runs under the server's mutex and must
// not block.
//
// Each connection of a Server has one goroutine that reads and answers requests. A second goroutine sends other
// output, such as watch batches, and exists only while there is output. Only the goroutine that has set conn.writing
// writes to the connection. Close waits for all goroutines.
//
// A watch does not queue batches. It records which keys have changed and reads their values when its connection has
// room. Therefore a slow client costs only the names of these keys, and nobody waits for it.
package coord
