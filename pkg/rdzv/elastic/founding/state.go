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

// State is what a process that can keep the store knows of the groups that keep it, or kept it, and what follows:
// whether the process may found a group, and whether it gives up its own. It has neither a clock nor a network.
type State struct {
	TTL   time.Duration
	Addr  string       // at which others reach this process
	Index int          // of the endpoint, or NotAtEndpoint
	Job   EarlierGroup // what the records of all groups of the job have in common

	Earlier      *EarlierGroup // of an earlier process at the endpoint; nil once it is known to have ended
	Status       group.Status
	Closing      bool
	WasMember    bool                 // this process has been in a group, or knows one
	Leaderless   time.Time            // since when it knows no leader of its group
	HeardOf      time.Time            // when it last heard of another group that has a leader
	FirstHand    time.Time            // HeardOf, but not from a process that has passed the news on
	otherGroup   string               // the instance of the last one
	Followed     group.Announcement   // the group that this process has left its own one for, or has a session in
	FollowedAs   Standing             // what its leader says of it
	TooFew       time.Time            // since when too few agents of a former group may be alive; see mayReplace
	leaderlessAt map[string]time.Time // since when agents of a former group have said that they know no leader
	HasRound     bool                 // a round was decided, as far as this process knows
	Yielding     bool                 // this process gives up its group, so no round is decided
	Known        []string             // the other agents that can keep the store
	Others       int                  // how many further agents there are
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

// KnowsGroup reports whether this process is in a group or knows one, which may only have no leader for a moment.
func (f *State) KnowsGroup(now time.Time) bool {
	return f.Status.Leader != "" || f.Status.Member && now.Sub(f.Leaderless) < f.TTL ||
		!f.HeardOf.IsZero() && now.Sub(f.HeardOf) < f.TTL
}

// Former returns what is known of the group that this process has lost, or that an earlier one has recorded. It is nil
// if there was none.
func (f *State) Former() *EarlierGroup {
	if f.WasMember {
		return f.record()
	}
	return f.Earlier
}

// record returns what is known of the group.
func (f *State) record() *EarlierGroup {
	g := f.Job
	g.Addrs, g.Others = f.Known, f.Others
	return &g
}

// MayBeginAnew reports whether this process may found another group in place of a former one, of which alive may have a
// leader. errs are those of attempts to reach its agents.
func (f *State) MayBeginAnew(now time.Time, former *EarlierGroup, errs []error) (alive []string, may bool) {
	for i, addr := range former.Addrs {
		if f.mayHaveLeader(now, addr, errs[i]) {
			alive = append(alive, addr)
		}
	}
	return alive, f.mayReplace(now, len(alive), former)
}

// mayReplace decides MayBeginAnew, when so many of the agents that could be asked may be alive. It may if there are
// none, and were no others. It also may if all have been too few for a round, even with this node, for a keep-alive
// time: a group that waits for this node must not lose it. So it may if only others are left, which nobody can ask: a
// group of theirs would have announced itself here by then.
func (f *State) mayReplace(now time.Time, alive int, former *EarlierGroup) bool {
	switch {
	case alive+former.Others == 0:
		return true
	case alive > 0 && alive+former.Others+1 >= former.Min:
		f.TooFew = time.Time{}
		return false
	case f.TooFew.IsZero():
		f.TooFew = now
	}
	return now.Sub(f.TooFew) >= f.TTL
}

// mayHaveLeader reports whether an agent of the former group may be in a group that has a leader. err is that of an
// attempt to reach it. It is in none if nobody listens there, or somebody else does, or if it has said for a keep-alive
// time that it knows no leader: it will leave its group then when this process announces another one. The error may be
// that of another agent, which the first one has named as the leader. It may lead even if it refuses this process: an
// agent that loses its session names nobody any more.
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
	f.Earlier, f.WasMember, f.HasRound, f.leaderlessAt, f.TooFew = nil, false, false, nil, time.Time{}
}

// Standing is what the leader of a group announces of it.
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

// precedes reports whether the group with this standing, which is led at addr, goes on when it meets the other one: it
// has a round and the other one has none, or neither has and its endpoint is the earlier one. Endpoints in different
// orders can make the indexes equal; then the addresses decide. Of two groups with rounds none precedes.
func (s Standing) precedes(addr string, other Standing, otherAddr string) bool {
	if s.HasRound || other.HasRound {
		return !other.HasRound
	}
	return cmp.Or(cmp.Compare(s.Index, other.Index), cmp.Compare(addr, otherAddr)) < 0
}

// Own returns what this process, while it leads, says of its group.
func (f *State) Own() Standing { return Standing{f.Job.Label, f.HasRound, f.Index} }

// Standing returns what the leader says of the group that this process belongs to, or else follows.
func (f *State) Standing() Standing {
	if f.Status.Member {
		return f.Own()
	}
	return f.FollowedAs
}

// Reaction is what a process does about another group that it has heard of.
type Reaction int

// What a process does about another group.
const (
	Stays     Reaction = iota // it does nothing
	Yields                    // it follows the other group
	Notifies                  // it names its own group to the other one's leader, who may not know of it
	Conflicts                 // both groups go on
)

// Judge decides what this process does about the announcement of another group. session is the instance of the store in
// which the agent has a session. news says that the latest announcement was of a third group.
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
	case knows && mine.precedes(at, its, other.Addr) && (s.Leader != "" || now.Sub(f.FirstHand) < Lately):
		return Notifies, news
	case s.Member:
		return Conflicts, news
	}
	return Stays, news
}

// Lately is how old the news of a group may be that this process passes on: its leader announces it twice a second.
// What others have passed on is not: such news would go round when its group has ended.
const Lately = 2 * time.Second

// Follow records that this process has given up its own group for another one. as is what its leader says of it. Until
// this process learns who keeps the other group, it knows only who has announced it, and those that the file names.
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

// SetKnown sets which other agents can keep the store, as far as this process knows. It returns a record for the next
// process at the endpoint, or nil if the last one is still right. mayGoOn says that the others can go on without a word
// of this process: of two agents, one votes. It also keeps the store alone until more can vote; then its guard can hand
// over to another one, see [Heirs].
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

// TakeOverTime is how long after its leader's last word an agent may take over, if a session has this TTL. An agent at
// a further endpoint may begin another store FoundDelay later, and the first round of one takes a session's time to
// begin, unless all nodes are there.
func TakeOverTime(ttl time.Duration) time.Duration { return min(ttl/2, FoundDelay*3/4) }

// MayTakeOver reports whether this process may take over the group in which its agent has a session. The agent sent the
// latest keep-alive that was answered so long ago.
func (f *State) MayTakeOver(unanswered time.Duration) bool {
	return !f.Closing && !f.Yielding && unanswered < min(f.TTL, FoundDelay*9/10)
}

// Heirs returns a record of the agents that may go on without this process, or nil if there are none, or if there is no
// place for it.
func (f *State) Heirs() *EarlierGroup {
	if !f.AtEndpoint() || len(f.Known) == 0 {
		return nil
	}
	return f.record()
}
