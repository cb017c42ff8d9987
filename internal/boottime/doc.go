// Package boottime reads a monotonic clock that continues while the machine is suspended. The monotonic clock of
// package time stops then. Sessions use this clock, because other machines do not wait for one that is suspended.
//
// Its times are not wall-clock times, and mean nothing on another machine. [Now] may be called from any goroutine.
package boottime
