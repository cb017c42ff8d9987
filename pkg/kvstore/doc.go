// Package kvstore is the key-value store through which the processes of a job find each other: the
// Store interface, HashStore for one process, and Server, which real torch workers join as a
// TCPStore.
//
//	bytes ─▶ decoder (wire.go) ─▶ request ─▶ apply (apply.go) ─▶ core (core.go)
//	bytes ◀─ conn (conn.go) ◀──── answer ◀──────────┘              │
//	             ▲                                                 │
//	             └──────────── release of a wait ──────────────────┘
//
// The decoder, apply and core know no sockets, goroutines or clocks: the decoder takes bytes in any
// pieces, core calls a function when a wait is over. Server and conn put one goroutine on each
// connection around them; another connection layer can take their place.
//
// # Two generations on one port
//
// Server speaks both generations of torch's protocol, told apart by a connection's first bytes:
// torch 2.x opens with VALIDATE and its magic number, torch 1.13 has no handshake and op numbers
// lower by one. Both share one keyspace. Where torch's own servers differ from each other, the libuv
// server of torch 2.14 is the one followed. In particular:
//
//   - GET and MULTI_GET answer an empty value for a missing key, in both generations.
//   - A wait counts each of its keys when that key is set: set a, delete a, set b releases a wait
//     for a and b. Only an operation that stores something releases a wait.
//   - A wait of a 2.x client ends with STOP_WAITING or with CANCEL_WAIT, and every CANCEL_WAIT is
//     answered, also one that crossed a STOP_WAITING. Requests sent behind a wait are answered
//     after it.
//   - A 1.13 client cancels a wait by sending its next request.
//   - WATCH_KEY (first generation) closes the connection: no public call of torch 1.13 sends it. So
//     do the ops that are not served: QUEUE_PUSH, QUEUE_POP, QUEUE_LEN, LIST_KEYS and BARRIER.
//
// # What a client may do
//
// Anything. A request that cannot be understood, or that stops half way for longer than
// ServerOptions.StallTimeout, closes its own connection; what the answered requests before it did
// stays done, and nobody else notices. No memory is set aside for a length that a client claims,
// only for the bytes that came. A connection that says nothing stays open for ever: torch 1.13 keeps
// one such connection per worker, and spins on a core when it is closed. A client that does not read its
// answers holds up nobody but itself.
//
// # Concurrency
//
// Server and HashStore may be used by any number of goroutines. core, decoder and conn have one
// owner at a time; Server and HashStore guard their core with a mutex that is never held while
// bytes are read or written.
package kvstore
