// Package limits tells whether the machine lets a launcher have the processes, threads and open files that it needs.
//
// The Go runtime ends a program when the kernel refuses it a thread, and workers can use up whatever limit there is. So
// guard and agent compare what they will need with the limits of the cgroup and of the user, and make their threads before
// the first worker starts. Its functions keep no state and may be called from any goroutine.
package limits
