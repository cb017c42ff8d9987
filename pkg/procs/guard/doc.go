// Package guard runs this program a second time and cleans up after it.
//
// The process that the user starts becomes the guard. It starts the agent, which runs the job, passes signals on to it,
// and kills and reaps whatever is left once the agent has ended, however it ended: by SIGKILL too. The agent's side is
// a [Lifeline]: by it the agent learns that the guard has died, sets a deadline after which the guard kills the
// workers, and leaves a message for the case that it dies.
//
// The package is for Linux; elsewhere [Supported] is false and the program runs the agent itself. It does not start or
// stop workers: package procs does.
//
// # Concurrency
//
// A process calls [Run] once, before it has other goroutines that wait for children. The methods of a [Lifeline] may be
// called from any goroutine.
package guard
