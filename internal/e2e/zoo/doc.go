// Package zoo has the tests of workers that misbehave. They run the elasticrun binary with testdata/zoo/zoo.py and
// with real torch, on this machine. Whatever a worker does, the job ends in bounded time with the right exit code and
// root cause, reports what was lost, uses little memory and leaves nothing behind. Jobs over several hosts are in
// package scenario.
package zoo
