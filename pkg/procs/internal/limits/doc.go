// Package limits compares what a launcher needs with what the machine allows: processes, threads and open files.
//
// It reads the limits of the cgroup and of the user, and makes threads in advance. It does not raise limits. Its
// functions keep no state and may be called from any goroutine.
package limits
