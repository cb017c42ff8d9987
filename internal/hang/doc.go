// Package hang judges whether a job hangs, and which of its workers is the likeliest reason.
//
// Its input is what the agents of all nodes have seen when they looked closely at their workers ([stacks.Worker] with
// [stacks.Life]). [Judge] is a pure function of that; the [Finding] is shown to people by its Summary and Text.
//
// The package reads nothing, and decides nothing about the job: the leader does, in package rounds.
//
// Its functions may be called from several goroutines at once.
package hang
