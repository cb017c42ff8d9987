package founding

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
)

// State is one process's knowledge of the groups that keep the store now or kept it before. State decides whether the
// process may found a group, and whether it gives up its own group. It has neither a clock nor a network.
type State struct {
	TTL   time.Duration
	Addr  string       // where others reach this process
	Index int          // index of this process's endpoint, or NotAtEndpoint
	Job   EarlierGroup // the fields that the records of all groups of the job share

	Earlier      *EarlierGroup // of an earlier process at the endpoint; nil once it is known to have ended
	Status       group.Status
	Closing      bool
	WasMember    bool                 // this process has been in a group, or knows one
	Leaderless   time.Time            // since when this process knows no leader of its group
	HeardOf      time.Time            // when this process last heard of another group with a leader
	FirstHand    time.Time            // like HeardOf, without relayed announcements
	otherGroup   string               // instance of the group announced last
	Followed     group.Announcement   // the group that this process joined or has a session in
	FollowedAs   Standing             // the leader's description of Followed
	TooFewSince  time.Time            // since when the former group can have too few agents; see mayReplace
	leaderlessAt map[string]time.Time // by address: since when an agent of a former group reports no leader
	HasRound     bool                 // this process knows that a round was decided
	Yielding     bool                 // this process is giving up its group and must decide no round
	Known        []string             // the other agents that can keep the store
	Others       int                  // number of agents that are neither in Known nor this process
	Alone        bool                 // this process kept the store alone at the latest SetKnown
}

// NotAtEndpoint is the index of a process that listens at no endpoint.
const NotAtEndpoint = 1 << 20

// AtEndpoint reports whether the process listens at an endpoint.
func (f *State) AtEndpoint() bool { return f.Index != NotAtEndpoint }

// Observe records a new state of the process's group.
func (f *State) Observe(now time.Time, s group.Status) {
	if f.Status.Leader != "" && s.Leader == "" {
		f.Leaderless = now
	}
	f.Status = s
	f.WasMember = f.WasMember || s.Member
}

// KnowsGroup reports whether this process is in a group or knows one. The group may have been leaderless for less than
// TTL.
func (f *State) KnowsGroup(now time.Time) bool {
	return f.Status.Leader != "" || f.Status.Member && now.Sub(f.Leaderless) < f.TTL ||
		!f.HeardOf.IsZero() && now.Sub(f.HeardOf) < f.TTL
}

// Former returns the record of the group that this process has lost, or of the group that an earlier process recorded.
// It returns nil if there was no group.
func (f *State) Former() *EarlierGroup {
	if f.WasMember {
		return f.record()
	}
	return f.Earlier
}

// record describes this process's group.
func (f *State) record() *EarlierGroup {
	g := f.Job
	g.Addrs, g.Others = f.Known, f.Others
	return &g
}

// MayBeginAnew reports whether this process may found a new group in place of the former one. errs[i] is the error of
// the attempt to reach former.Addrs[i]. alive lists the addresses of agents that may still be in a group with a leader.
func (f *State) MayBeginAnew(now time.Time, former *EarlierGroup, errs []error) (alive []string, may bool) {
	for i, addr := range former.Addrs {
		if f.mayHaveLeader(now, addr, errs[i]) {
			alive = append(alive, addr)
		}
	}
	return alive, f.mayReplace(now, len(alive), former)
}

// mayReplace decides MayBeginAnew. alive counts the agents with known addresses that may be alive. This process may
// found a new group at once if alive and former.Others are both 0. It must not while alive is above 0 and all these
// agents, with this node, are enough for a round: their group may be waiting for this node. Once they have been too few
// for TTL, it may. The same wait covers a former group of which only Others are left, agents without a known address:
// their group would have announced itself here within TTL.
func (f *State) mayReplace(now time.Time, alive int, former *EarlierGroup) bool {
	switch {
	case alive+former.Others == 0:
		return true
	case alive > 0 && alive+former.Others+1 >= former.Min:
		f.TooFewSince = time.Time{}
		return false
	case f.TooFewSince.IsZero():
		f.TooFewSince = now
	}
	return now.Sub(f.TooFewSince) >= f.TTL
}

// mayHaveLeader reports whether the agent of the former group at addr may be in a group that has a leader. err is the
// error of an attempt to reach the agent. The agent is in no such group if nothing listens at addr or another program
// does. The same holds if the agent has reported for TTL that it knows no leader: it then leaves its group as soon as
// this process announces another one. err may come from a second agent that the first one named as the leader. An agent
// may lead even if it refuses this process: an agent that loses its session names no leader any more.
func (f *State) mayHaveLeader(now time.Time, addr string, err error) bool {
	failed, ok := errors.AsType[*coord.DialError](err)
	if !ok || failed.Obstacle == coord.ObstacleRefused && failed.Addr == addr || !errors.Is(err, coord.ErrUnavailable) {
		return false
	}
	if failed.Obstacle != coord.ObstacleElsewhere {
		delete(f.leaderlessAt, addr)
		return true
	}
	since, asked := f.leaderlessAt[addr]
	if !asked {
		if f.leaderlessAt == nil {
			f.leaderlessAt = map[string]time.Time{}
		}
		since = now
		f.leaderlessAt[addr] = since
	}
	return now.Sub(since) < f.TTL
}

// BeginAnew forgets the former group.
func (f *State) BeginAnew() {
	f.Earlier, f.WasMember, f.HasRound, f.leaderlessAt, f.TooFewSince = nil, false, false, nil, time.Time{}
}

// Standing is the description of a group in its leader's announcements.
type Standing struct {
	Label    string `json:"label,omitempty"` // C10d.Label
	HasRound bool   `json:"has_round,omitempty"`
	Index    int    `json:"index"`
}

// Text encodes s for an announcement.
func (s Standing) Text() string {
	text, _ := json.Marshal(s) // cannot fail
	return string(text)
}

// precedes reports whether this group, led at addr, survives when it meets the other group. A group with a round
// precedes a group without one. If neither has a round, the group at the earlier endpoint precedes. If agents list the
// endpoints in different orders, the indexes can be equal; then the addresses decide. Of two groups with rounds,
// neither precedes.
func (s Standing) precedes(addr string, other Standing, otherAddr string) bool {
	if s.HasRound || other.HasRound {
		return !other.HasRound
	}
	return cmp.Or(cmp.Compare(s.Index, other.Index), cmp.Compare(addr, otherAddr)) < 0
}

// Own returns the standing that this process announces while it leads.
func (f *State) Own() Standing { return Standing{f.Job.Label, f.HasRound, f.Index} }

// Standing returns the standing of this process's group, or else of the group that it follows.
func (f *State) Standing() Standing {
	if f.Status.Member {
		return f.Own()
	}
	return f.FollowedAs
}

// Reaction is a process's reaction to the announcement of another group.
type Reaction int

// The reactions.
const (
	Stays     Reaction = iota // it does nothing
	Yields                    // it follows the other group
	Notifies                  // it announces its own group to the other leader, which may not know it
	Conflicts                 // both groups go on
)

// Judge decides how this process reacts to the announcement of another group. session is the instance of the store in
// which the agent has a session. news says that the announcement before this one was not of the same group.
func (f *State) Judge(
	now time.Time, other group.Announcement, its Standing, session string,
) (does Reaction, news bool) {
	if its.Label != f.Job.Label {
		return Stays, false
	}
	s, mine, at := f.Status, f.Standing(), f.Addr
	if !s.Member {
		at = f.Followed.Addr
	}
	following := f.Followed.Instance != "" && (now.Sub(f.HeardOf) < f.TTL || session == f.Followed.Instance)
	knows := s.Member || following && f.Followed.Instance != other.Instance
	leaderless := s.Member && s.Leader == "" && now.Sub(f.Leaderless) >= f.TTL/2
	mayYield := f.AtEndpoint() && (!s.Member || !f.HasRound) // only leaderless members leave a group with a round
	news = f.otherGroup != other.Instance
	f.otherGroup = other.Instance
	switch {
	case !f.Closing && (leaderless || mayYield && (!knows || its.precedes(other.Addr, mine, at))):
		f.Yielding = f.Yielding || s.Member
		return Yields, news
	case knows && mine.precedes(at, its, other.Addr) && (s.Leader != "" || now.Sub(f.FirstHand) < MaxRelayAge):
		return Notifies, news
	case s.Member:
		return Conflicts, news
	}
	return Stays, news
}

// MaxRelayAge is the greatest age of an announcement that this process relays; a leader announces its group twice a
// second. A process relays only announcements that it got from the leader itself. Otherwise announcements of a dead
// group would circulate forever.
const MaxRelayAge = 2 * time.Second

// Follow records that this process has given up its own group for the group other, with the standing as. Until this
// process learns the members of that group, it knows only the announcing agent and the agents in Earlier.
func (f *State) Follow(now time.Time, other group.Announcement, as Standing) {
	if !f.WasMember && f.Earlier != nil {
		f.Known, f.Others = slices.Clone(f.Earlier.Addrs), f.Earlier.Others
	}
	if other.Addr != f.Addr && !slices.Contains(f.Known, other.Addr) {
		f.Known = append(slices.Clip(f.Known), other.Addr)
	}
	f.HeardOf, f.Yielding, f.WasMember = now, false, true
	f.Followed, f.FollowedAs = other, as
	if !other.Relayed {
		f.FirstHand = now
	}
}

// SetKnown sets the other agents that can keep the store, as far as this process knows. It returns a new record for the
// next process at the endpoint, or nil if the last record is still right. mayGoOn says that the others can continue the
// store without a message from this process. They cannot if this process is the only voter and knows at most one other
// agent. A lone voter's guard can still hand over to another agent, see elastic.Heirs.
func (f *State) SetKnown(addrs []string, others int) (record *EarlierGroup, mayGoOn bool) {
	known := slices.DeleteFunc(slices.Clone(addrs), func(addr string) bool { return addr == f.Addr })
	slices.Sort(known)
	known = slices.Compact(known)
	alone := f.Status.Leading && len(f.Status.Voters) == 1
	same := slices.Equal(known, f.Known) && f.Others == others && alone == f.Alone
	f.Known, f.Others, f.Alone = known, others, alone
	if same {
		return nil, false
	}
	return f.Heirs(), !alone || len(known) > 1
}

// TakeOverTime is how long after its leader's last message an agent may still take over; ttl is the TTL of a session.
// The limit must end before a second store can exist. An agent at a further endpoint may found one after FoundDelay,
// and its first round begins a TTL later unless all nodes are present.
func TakeOverTime(ttl time.Duration) time.Duration { return min(ttl/2, FoundDelay*3/4) }

// MayTakeOver reports whether this process may take over the group in which its agent has a session. unanswered is the
// time since the agent sent the last keep-alive that was answered.
func (f *State) MayTakeOver(unanswered time.Duration) bool {
	return !f.Closing && !f.Yielding && unanswered < min(f.TTL, FoundDelay*9/10)
}

// Heirs returns a record of the agents that may continue the store without this process. It returns nil if there are no
// such agents, or if this process has no endpoint and so no file for the record.
func (f *State) Heirs() *EarlierGroup {
	if !f.AtEndpoint() || len(f.Known) == 0 {
		return nil
	}
	return f.record()
}
