package elastic

import "time"

// Time limits of the agents that keep a store together. The simulation of package rounds uses the same ones.

// foundDelay is how long each agent at a further endpoint waits longer than the one before it, before it founds a group.
const foundDelay = 10 * time.Second

// memberTimeout bounds an attempt to reach one of several members.
const memberTimeout = 2 * time.Second

// handOverTime is how long HandOver tries, handOverAttempt bounds an attempt, and handOverPause is the pause after all
// heirs were asked in vain.
const (
	handOverTime    = 2 * time.Second
	handOverAttempt = time.Second
	handOverPause   = 50 * time.Millisecond
)

// leaveTimeout bounds how long an agent that leaves a running job hands over what it does for the store's group.
const leaveTimeout = 4 * time.Second

// lostLeaderTimeout is how long a process that ends waits for a leader of the group that it has lost. Elections take
// less.
const lostLeaderTimeout = 3 * time.Second
