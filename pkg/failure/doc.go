// Package failure defines what is known about a worker that failed: a [Failure], the [Finding] values that speak
// against the worker, and the [Kind] and grade of each.
//
// The agent makes a Failure from an exit and its evidence (package evidence). Package rdzv sends it to the other nodes.
// The agent turns it into the JSON of reports and the event log. This package reads nothing and decides nothing else,
// so every package may import it.
//
// All values may be used by several goroutines as long as none of them changes a value.
package failure
