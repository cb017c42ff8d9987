// Package zoo has the tests of workers that misbehave: the elasticrun binary with
// testdata/zoo/zoo.py and with real torch, on this machine. Whatever a worker does, the job
// ends in bounded time with the right code and root cause, says what could not be kept or
// seen, takes little memory for itself and leaves nothing behind.
package zoo
