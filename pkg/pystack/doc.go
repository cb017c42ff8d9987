// Package pystack reads the Python stacks of another process on the same machine: each thread with its frames, and each
// frame with file, line and qualified name.
//
// The other process runs on and does not notice: nothing stops, signals or writes to it. The reader needs the rights of
// ptrace(2), which a parent has over the processes that it started as the same user. The package reads the other
// process's memory with process_vm_readv(2), and finds _PyRuntime, the root of all of Python's data, once in [Open].
//
//	/proc/PID/maps ─▶ ELF images ─▶ _PyRuntime ─▶ interpreters ─▶ threads ─▶ frames ─▶ code objects
//
// It reads CPython 3.9 to 3.15 on 64-bit Linux, linked statically or as a shared library. Version 3.13 and later
// describe where their data lies (layoutOf in debugoffsets.go); earlier versions have tables in layout.go, which say
// how each was checked. On other systems, and for everything that cannot be read, Open returns an [UnsupportedError].
//
// # What it is not for
//
// The package does not show C frames, local variables, or who holds the global interpreter lock. It is no profiler: a
// thread that calls and returns all the time is read as it happened to be, and [Thread.Changed] says so. It does not
// read PyPy, free-threaded builds and core files.
//
// # Concurrency
//
// A [Process] has buffers that each of its methods uses, so only one goroutine at a time may call them. Several Process
// values are independent, also for one pid. The package starts no goroutines, and holds no files open.
package pystack
