// Package filestore is a key-value store in a file that several processes share. It has the format and the behavior
// of torch 2.14's FileStore (torch/csrc/distributed/c10d/FileStore.cpp), so Go and torch can share one file.
//
// Use it where processes share a file system but no network port, or in tests. Waits poll the file every 10 ms, so it
// is not the store for a large job: use package tcpstore there.
//
// # Concurrency
//
// Any number of goroutines, and any number of processes, may use one file. Each operation holds the file's lock while
// it reads the new records and appends its own.
package filestore
