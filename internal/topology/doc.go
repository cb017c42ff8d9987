// Package topology answers what the launcher must know about its machine before it starts workers:
// how many CPUs and which GPUs a job may use, which CPUs belong to a GPU, who holds a TCP port, and
// which Python interpreter runs the script.
//
// Everything is read from files (/proc, /sys, /dev) through an fs.FS, so that a test can describe a
// machine as a map of files; the exported functions without such an argument read the real machine.
// The one process ever started is nvidia-smi, and only when the files do not say which GPUs there are.
// The environment is read through a function with the signature of os.LookupEnv.
//
// Nothing is cached and no state is kept: all functions may be called concurrently. The one goroutine
// that is ever started waits for nvidia-smi and has ended when GPUs returns, unless the kernel itself
// keeps that process from ending (see GPUs).
package topology
