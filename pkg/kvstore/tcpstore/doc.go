// Package tcpstore is torch's TCPStore in Go: a [Server] for torch's clients and Go's, and a [Client] for this server
// and torch's.
//
// It is not a general key-value server: keys live in memory, clients are not authenticated, and in a job one server
// serves one round.
//
// # The server
//
//	bytes ─▶ decoder (request.go) ─▶ request ─▶ apply (apply.go) ─▶ keyspace.Space
//	bytes ◀─ conn (server_conn.go, server_reply.go) ◀── reply ◀─┘         │
//	             ▲                                                        │
//	             └──────────────── release of a wait ─────────────────────┘
//
// The decoder, apply and the key space use no sockets, goroutines or clocks. One goroutine, the loop
// (server_loop.go), owns the store and all connections. It waits in the kernel (poll_linux.go, poll_darwin.go) until
// a connection is ready, and lets each ready connection do what it can. A goroutine for each connection would be less
// code but costs 1.4 times the CPU time per request; the difference is the scheduler's.
//
// The server speaks both versions of torch's protocol on one port and recognizes them by the first bytes of a
// connection. torch 2.x ([ProtocolV2]) begins with VALIDATE and its magic number. torch 1.x ([ProtocolV1]) has no
// handshake, and its op codes, except that of DELETE_KEY, are lower by one. Both share one key space. A connection
// whose first byte is 0x80 or more speaks neither; [ServerOptions.Agents] receives it.
//
// Where torch's own servers differ from each other, this one follows the libuv server of torch 2.14
// (torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp). In particular:
//
//   - GET of a missing key replies with an empty value in both protocols, and so does MULTI_GET.
//   - A wait counts each of its keys when that key is set: set a, delete a, set b releases a wait for a and b. Only an
//     operation that stores something releases a wait.
//   - A wait of a 2.x client ends with STOP_WAITING or with CANCEL_WAIT. Every CANCEL_WAIT gets a reply, even one that
//     crossed a STOP_WAITING. Requests sent behind a wait are answered after it.
//   - A 1.13 client cancels a wait by sending its next request.
//   - CHECK and WAIT count a queue that is not empty as present. QUEUE_PUSH releases only the oldest wait for its key.
//     GET, DELETE_KEY, GETNUMKEYS and LIST_KEYS do not see queues.
//   - BARRIER counts arrivals under its key, as ADD does, and never resets. An arrival whose client gave up stays
//     counted, and later arrivals pass. While it blocks, it is a wait for its key like any other.
//   - WATCH_KEY of protocol 1 closes the connection: no public call of torch 1.13 sends it.
//
// It differs from torch on purpose in its limits: torch's limits of keys, values and counts also hold for 1.13 clients,
// a whole request is limited to 256 MiB, and a value that APPEND made to 64 MiB. [ServerOptions] has further limits.
//
// # Misbehaving clients
//
// A request that is malformed, or that arrives too slowly, closes its own connection. Earlier requests of that
// connection stay done, and no other connection notices.
//
// The server allocates memory for bytes that arrived, never for a length that a client claims, and limits the total.
// At the limit it closes the connection that uses most memory; if the store itself is full, it closes the connection
// that would store more. A busy client yields to the others after each megabyte. The server does not read from a
// client that does not read its replies.
//
// There are at most 16,384 connections on which the client never sent anything, and at most a quarter of the process's
// limit of open files. Above that, the server closes the oldest. For each address it keeps as many of them as the
// address has torch 1.13 connections in use: torch 1.13 keeps one such connection per worker, and spins on a CPU core
// when that is closed.
//
// The last eighth of the process's files, at most 16,384, is never given to clients that send requests: the server
// refuses them with ReasonFiles. So agents can still connect, and the process can open files of its own.
//
// # Concurrency
//
// Any number of goroutines may use a Server or a Client. A Space, a decoder, a conn and a loop belong to the loop's
// goroutine.
package tcpstore
