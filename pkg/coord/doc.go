// Package coord is the agents' coordination store: a small, linearizable map of keys to bytes with revisions,
// sessions whose keys vanish with their owner, commits that happen as a whole under guards, and watches that never
// miss a change in silence.
//
// [Store] is what the rendezvous needs of it; package etcd, beneath this one, has it from etcd. The store of our own is
//
//	core       what a commit, a session and a watch are; pure, time is an argument
//	           (core.go, watcher.go, timers.go, index.go; budget.go bounds its memory)
//	Server     connections, the clock, and Local, a Store in the server's process
//	           (server.go, conn.go, connhello.go, local.go; for OpenServer disk.go, journal.go; what bounds clients:
//	           underway.go, pending.go, refusals.go)
//	Client     a Store elsewhere: one connection, made anew when it breaks
//	           (client.go, link.go, again.go, watch.go, gather.go, dial.go, torchprobe.go)
//	protocol   frames and their fields, the handshake
//	           (wire.go, wirebatch.go, hello.go, fields.go)
//
// # Sessions
//
// A session ends TTL after its last keep-alive, and nothing but a keep-alive counts: neither a commit nor a
// connection proves that an agent's own loop goes on. It ends earlier when its client ends it, or whoever else has its
// token: [EndSession] is how the death of a process is told at once. A connection that breaks proves nothing: a firewall
// or a proxy may have ended it, and the process may live. A connection that resumes a session takes it from one that has
// it. A server that did not run for a while, because its process or machine was stopped, lets all sessions and TTLs last
// longer by that: it cannot have heard anybody.
//
// # Locks and goroutines
//
// A Server has one mutex, and so has a Client; neither is held while the other is taken, nor during anything that
// waits for a network, a disk or a caller. The functions a watcher is woken by run under the server's, and only take
// notes.
//
// A connection of a Server has one goroutine that reads and answers. What its client is to be told besides is written
// by a second one, which lives as long as there is something to write. Whoever sets conn.writing writes, and nobody
// else. Close waits for all of them.
//
// A watch does not queue batches: it remembers which keys have changed, and reads them when its connection has room.
// So a client that is slow, or takes nothing, costs the names of these keys, and holds nobody up.
package coord
