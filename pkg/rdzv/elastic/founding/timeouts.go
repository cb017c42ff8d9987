package founding

import "time"

// Time limits of the agents that keep a store together. The simulation of package rounds uses the same ones.
const (
	// FoundDelay is how long each agent at a further endpoint waits longer than the one before it, before it founds a
	// group.
	FoundDelay = 10 * time.Second
	// MemberTimeout bounds an attempt to reach one of several members.
	MemberTimeout = 2 * time.Second
	// HandOverTime is how long a guard asks the heirs in all, HandOverAttempt bounds an attempt to ask one, and
	// HandOverPause is the pause after all were asked in vain.
	HandOverTime    = 2 * time.Second
	HandOverAttempt = time.Second
	HandOverPause   = 50 * time.Millisecond
	// LeaveTimeout bounds how long an agent that leaves a running job hands over what it does for the store's group.
	LeaveTimeout = 4 * time.Second
	// LostLeaderTimeout is how long a process that ends waits for a leader of the group that it has lost. Elections take
	// less.
	LostLeaderTimeout = 3 * time.Second
)
