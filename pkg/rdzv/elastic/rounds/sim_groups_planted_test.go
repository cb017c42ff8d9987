package rounds

import (
	"testing"
	"time"
)

// simPlantedInGroup are deliberate bugs of a store that the agents keep together. The zero value has none.
type simPlantedInGroup struct {
	fromMemory   bool                                          // a server answers keep-alives without a majority
	lease        func(w *world, ses *simSession) time.Duration // what is left of a session that a new server has loaded
	twoVoters    bool                                          // a group of two has two voters
	foundsAnyway bool                                          // an agent at the endpoint founds a group whoever may go on
	noFile       bool                                          // an agent at the endpoint does not record who may go on
	noFresh      bool                                          // a group in place of a former one begins without a wait
	noHeirFile   bool                                          // a guard hands over though another agent has come
	takesLate    bool                                          // a member takes over late, and without a session
	deaf         bool                                          // announcements have no effect
}

// TestSimulationOfGroupsFindsPlantedBugs is TestSimulationFindsPlantedBugs for stores that the agents keep together.
func TestSimulationOfGroupsFindsPlantedBugs(t *testing.T) {
	for _, bug := range []struct {
		name  string
		seed  uint64 // one that finds the bug
		plant simPlantedInGroup
	}{
		{"a deposed leader's server answers from memory", 34, simPlantedInGroup{fromMemory: true}},
		{"a new server counts a session's time from its beginning", 34, simPlantedInGroup{
			lease: func(w *world, ses *simSession) time.Duration { return w.cfg.ttl - (w.now - ses.opened) },
		}},
		{"a new server keeps half of a session's time", 344, simPlantedInGroup{
			lease: func(w *world, _ *simSession) time.Duration { return w.cfg.ttl / 2 },
		}},
		{"two voters", 0, simPlantedInGroup{twoVoters: true}},
		{"the agent at the endpoint founds another group although others may go on", 111, simPlantedInGroup{
			foundsAnyway: true,
		}},
		{"the agent at the endpoint does not record who may go on", 41, simPlantedInGroup{noFile: true}},
		{"another group does not wait for workers of the former one", 343, simPlantedInGroup{noFresh: true}},
		{"a guard hands over late, though another agent has come", 1585, simPlantedInGroup{noHeirFile: true, takesLate: true}},
		{"announcements have no effect", 133, simPlantedInGroup{deaf: true}},
	} {
		t.Run(bug.name, func(t *testing.T) {
			plant := planted{simPlantedInGroup: bug.plant}
			if bug.plant.noFresh { // agents of the former group make the leader wait too
				plant.report = withoutEarlier
			}
			newGroups.findPlanted(t, bug.seed, 2000, plant)
		})
	}
}

// withoutEarlier hides that an agent had a session in an earlier store.
func withoutEarlier(_ *Leader, r *Report) *Report {
	if r == nil {
		return nil
	}
	same := *r
	same.Earlier = false
	return &same
}
