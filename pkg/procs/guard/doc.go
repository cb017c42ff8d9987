// Package guard starts this program again as the agent, and kills what the agent leaves behind.
//
// The process that the user starts becomes the guard. It starts the agent, which runs the job, and passes signals on to
// it. Once the agent has ended, even by SIGKILL, the guard kills and reaps every process that is left. The agent's side
// is a [Lifeline]. Through it the agent notices the guard's death, sets the deadline at which the guard kills the
// workers, and stores the exit notice that the guard sends if the agent dies. At SIGTSTP (Ctrl-Z) the agent stops the
// workers before the guard stops itself; at SIGCONT it continues them.
//
// The package is for Linux; elsewhere [Supported] is false and the program runs the agent itself. It does not start
// workers, nor stop them with a grace period: package procs does.
//
// # Concurrency
//
// A process calls [Run] once, before it has other goroutines that wait for children. The methods of a [Lifeline] may be
// called from any goroutine.
package guard
