// Package kvstore is the key-value store through which the processes of a job find each other, and on which
// rendezvous and RPC are built. It is torch's Store in Go: a Go process and a torch process share one store.
//
//	Store        the interface, with HashStore (one process), FileStore (one file system), Client (a TCPStore
//	             server: this package's or torch's) and PrefixStore (a name space in another store)
//	Server       a TCPStore server, for torch's clients and for Client
//	Barrier, GetAll, Synchronize    for all members of a group, on any Store
//
// # The server
//
//	bytes ─▶ decoder (decoder.go) ─▶ request ─▶ apply (apply.go) ─▶ core (core.go, waiter.go)
//	bytes ◀─ conn (conn.go, reply.go) ◀── answer ◀─────┘              │
//	             ▲                                                    │
//	             └──────────── release of a wait ─────────────────────┘
//
// The decoder, apply and core know no sockets, goroutines or clocks. loop (loop.go) is the one goroutine
// that owns the store and all connections: it waits in the kernel (poll_linux.go, poll_darwin.go) until some of them
// can be read from or written to, and lets each do what it can. A goroutine for each connection would be less code
// here, but costs 1.4 times the CPU time per request, the difference being the scheduler's.
//
// Server speaks both generations of torch's protocol on one port, told apart by a connection's first bytes:
// torch 2.x opens with VALIDATE and its magic number, torch 1.13 has no handshake and op numbers
// lower by one. Both share one keyspace. A first byte of 0x80 or more is neither: ServerOptions.Agents gets such
// connections. Where torch's own servers differ from each other, the libuv
// server of torch 2.14 is the one followed. In particular:
//
//   - GET and MULTI_GET answer an empty value for a missing key, in both generations.
//   - A wait counts each of its keys when that key is set: set a, delete a, set b releases a wait
//     for a and b. Only an operation that stores something releases a wait.
//   - A wait of a 2.x client ends with STOP_WAITING or with CANCEL_WAIT, and every CANCEL_WAIT is
//     answered, also one that crossed a STOP_WAITING. Requests sent behind a wait are answered
//     after it.
//   - A 1.13 client cancels a wait by sending its next request.
//   - A queue that holds something is present for CHECK and WAIT, and QUEUE_PUSH wakes the one that has waited
//     longest. GET, DELETE_KEY, GETNUMKEYS and LIST_KEYS do not see queues.
//   - BARRIER counts arrivals under its key, as ADD does, and never resets: an arrival whose client lost
//     patience stays counted, and later ones pass. While it waits, it is a wait for its key like any other.
//   - WATCH_KEY (first generation) closes the connection: no public call of torch 1.13 sends it.
//
// Different from torch on purpose: the bounds of keys, values and counts hold for 1.13's clients too; a whole request has
// one as well (256 MiB), and so has a value that APPEND has made (64 MiB); and ServerOptions has more.
//
// # What a client may do
//
// Anything. A request that cannot be understood, or that goes on too slowly, closes its own connection; what the
// answered requests before it did stays done, and nobody else notices. No memory is set aside for a length that
// a client claims, only for the bytes that came, and all of it together has a bound; where that is reached, the
// connection that takes most is closed, or, where the store itself is full, the one that would store more. A client with
// much to ask gives the others their turn after each megabyte. A connection that says nothing stays open for ever:
// torch 1.13 keeps one such connection per worker, and spins on a core when it is closed. A client that does not
// read its answers is not read from either, and holds up nobody but itself.
//
// # Concurrency
//
// Server and every Store may be used by any number of goroutines. core, decoder, conn and loop have one
// owner at a time: the loop's goroutine, or HashStore, which guards its core with a mutex.
package kvstore
