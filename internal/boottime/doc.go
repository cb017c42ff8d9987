// Package boottime reads a monotonic clock that goes on while the machine is suspended, which the clock of package time does
// not. Leases are counted by it: other machines do not wait for one that sleeps.
//
// Its times are no wall-clock times, and mean nothing on another machine.
package boottime
