// Package safefile reads a file that decides what a program does, such as a config file, or that holds a secret. It
// says which other users could have written the file, and which may read it. It does not decide what to do about such
// a file, and it knows nothing of what the file holds.
//
// [Open] never blocks: not on a FIFO without a writer, and not on a device. It judges the file that it has opened and
// the folders and symbolic links that led to it, because a path can lead to another file a moment later.
//
// [Hide] prepares a file for a secret that is about to be written.
//
// The package keeps no state. Its functions may be called concurrently; a [File] belongs to one goroutine.
package safefile
