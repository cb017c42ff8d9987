// Package stacks says what the workers of a job are doing: it reads their Python stacks from outside, merges those that
// are equal, and prints them.
//
// An agent reads its own workers (Read), because it is their parent. The process that asks the agents merges their
// replies (Merge), and prints them as text or JSON. Nothing here runs while nobody asks.
//
// The package does not decide whether a job hangs.
//
// Its functions may be called from several goroutines at once.
package stacks
