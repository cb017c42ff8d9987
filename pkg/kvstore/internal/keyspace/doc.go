// Package keyspace is the state of a store in memory: keys, queues, and the waits for either. kvstore.HashStore and
// the TCPStore server share it.
//
// It does no I/O, starts no goroutine and reads no clock.
//
// # Concurrency
//
// A [Space] has one owner at a time: a HashStore guards its Space with a mutex, and the server's Space belongs to the
// goroutine of its loop.
package keyspace
