package founding

import "time"

// Time limits of the agents that keep a store together. The simulation of package rounds uses the same ones.
const (
	// FoundDelay is the additional wait per endpoint: the agent at endpoint n waits n times FoundDelay before it founds a
	// group.
	FoundDelay = 10 * time.Second
	// MemberTimeout bounds an attempt to reach one of several members.
	MemberTimeout = 2 * time.Second
	// HandOverTime bounds all attempts of a guard to hand over to an heir. HandOverAttempt bounds one attempt.
	// HandOverPause is the pause after no heir has accepted.
	HandOverTime    = 2 * time.Second
	HandOverAttempt = time.Second
	HandOverPause   = 50 * time.Millisecond
	// LeaveTimeout bounds how long an agent that leaves a running job hands over its duties in the store's group.
	LeaveTimeout = 4 * time.Second
	// LostLeaderTimeout is how long an ending process waits for its leaderless group to elect a leader. Elections take
	// less.
	LostLeaderTimeout = 3 * time.Second
)
