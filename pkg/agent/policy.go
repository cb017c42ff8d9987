package agent

// action is what the agent does after it has looked at its group.
type action int

const (
	keepWatching      action = iota
	finish                   // all workers succeeded
	giveUp                   // failed, and no restart is left
	restartCharged           // failed, and a restart is left
	restartMembership        // nodes came or went: not charged
	abort                    // the group is in a state that should not be
)

// decide is the restart policy of seed 002's run loop. waiting is the number of
// nodes that wait to be let in.
func decide(state WorkerState, remainingRestarts, waiting int) action {
	switch state {
	case Succeeded:
		return finish
	case Failed, Unhealthy:
		if remainingRestarts > 0 {
			return restartCharged
		}
		return giveUp
	case Healthy:
		if waiting > 0 {
			return restartMembership
		}
		return keepWatching
	default:
		return abort
	}
}

// flakiness is seed 002's measure in percent: 0 for a run without restarts, 100
// for one that failed.
func flakiness(failed bool, remaining, maxRestarts int) int {
	if failed {
		return 100
	}
	return int(100 - 100*float64(remaining+1)/float64(maxRestarts+1))
}
