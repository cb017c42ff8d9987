package elastic

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
)

// founding is what a process that can keep the store knows of the groups that keep it, or kept it, and what follows:
// whether the process may found a group, and whether it gives up its own. It has neither a clock nor a network.
type founding struct {
	ttl   time.Duration
	addr  string       // at which others reach this process
	index int          // of the endpoint, or notAtEndpoint
	job   earlierGroup // what the records of all groups of the job have in common

	earlier      *earlierGroup // of an earlier process at the endpoint; nil once it is known to have ended
	status       group.Status
	closing      bool
	wasMember    bool                 // this process has been in a group, or knows one
	leaderless   time.Time            // since when it knows no leader of its group
	heardOf      time.Time            // when it last heard of another group that has a leader
	firstHand    time.Time            // heardOf, but not from a process that has passed the news on
	otherGroup   string               // the instance of the last one
	followed     group.Announcement   // the group that this process has left its own one for, or has a session in
	followedAs   standing             // what its leader says of it
	tooFew       time.Time            // since when too few agents of a former group may be alive; see mayReplace
	leaderlessAt map[string]time.Time // since when agents of a former group have said that they know no leader
	hasRound     bool                 // a round was decided, as far as this process knows
	yielding     bool                 // this process gives up its group, so no round is decided
	known        []string             // the other agents that can keep the store
	others       int                  // how many further agents there are
	alone        bool                 // this process kept the store alone at the latest setKnown
}

// notAtEndpoint is the index of a process that listens at no endpoint.
const notAtEndpoint = 1 << 20

func (f *founding) atEndpoint() bool { return f.index != notAtEndpoint }

// observe records a new state of the process's group.
func (f *founding) observe(now time.Time, s group.Status) {
	if f.status.Leader != "" && s.Leader == "" {
		f.leaderless = now
	}
	f.status = s
	f.wasMember = f.wasMember || s.Member
}

// knowsGroup reports whether this process is in a group or knows one, which may only have no leader for a moment.
func (f *founding) knowsGroup(now time.Time) bool {
	return f.status.Leader != "" || f.status.Member && now.Sub(f.leaderless) < f.ttl ||
		!f.heardOf.IsZero() && now.Sub(f.heardOf) < f.ttl
}

// former returns what is known of the group that this process has lost, or that an earlier one has recorded. It is nil
// if there was none.
func (f *founding) former() *earlierGroup {
	if f.wasMember {
		return f.record()
	}
	return f.earlier
}

// record returns what is known of the group.
func (f *founding) record() *earlierGroup {
	g := f.job
	g.Addrs, g.Others = f.known, f.others
	return &g
}

// mayBeginAnew reports whether this process may found another group in place of a former one, of which alive may have a
// leader. errs are those of attempts to reach its agents.
func (f *founding) mayBeginAnew(now time.Time, former *earlierGroup, errs []error) (alive []string, may bool) {
	for i, addr := range former.Addrs {
		if f.mayHaveLeader(now, addr, errs[i]) {
			alive = append(alive, addr)
		}
	}
	return alive, f.mayReplace(now, len(alive), former)
}

// mayReplace decides mayBeginAnew, when so many of the agents that could be asked may be alive. It may if there are
// none, and were no others. It also may if all have been too few for a round, even with this node, for a keep-alive
// time: a group that waits for this node must not lose it. So it may if only others are left, which nobody can ask: a
// group of theirs would have announced itself here by then.
func (f *founding) mayReplace(now time.Time, alive int, former *earlierGroup) bool {
	switch {
	case alive+former.Others == 0:
		return true
	case alive > 0 && alive+former.Others+1 >= former.Min:
		f.tooFew = time.Time{}
		return false
	case f.tooFew.IsZero():
		f.tooFew = now
	}
	return now.Sub(f.tooFew) >= f.ttl
}

// mayHaveLeader reports whether an agent of the former group may be in a group that has a leader. err is that of an
// attempt to reach it. It is in none if nobody listens there, or somebody else does, or if it has said for a keep-alive
// time that it knows no leader: it will leave its group then when this process announces another one. The error may be
// that of another agent, which the first one has named as the leader. It may lead even if it refuses this process: an
// agent that loses its session names nobody any more.
func (f *founding) mayHaveLeader(now time.Time, addr string, err error) bool {
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
	return now.Sub(since) < f.ttl
}

// beginAnew forgets the former group.
func (f *founding) beginAnew() {
	f.earlier, f.wasMember, f.hasRound, f.leaderlessAt, f.tooFew = nil, false, false, nil, time.Time{}
}

// standing is what the leader of a group announces of it.
type standing struct {
	Label    string `json:"label,omitempty"` // C10d.Label
	HasRound bool   `json:"has_round,omitempty"`
	Index    int    `json:"index"`
}

func (s standing) text() string {
	text, _ := json.Marshal(s) // cannot fail
	return string(text)
}

// precedes reports whether the group with this standing, which is led at addr, goes on when it meets the other one: it
// has a round and the other one has none, or neither has and its endpoint is the earlier one. Endpoints in different
// orders can make the indexes equal; then the addresses decide. Of two groups with rounds none precedes.
func (s standing) precedes(addr string, other standing, otherAddr string) bool {
	if s.HasRound || other.HasRound {
		return !other.HasRound
	}
	return cmp.Or(cmp.Compare(s.Index, other.Index), cmp.Compare(addr, otherAddr)) < 0
}

// own returns what this process, while it leads, says of its group, and standing what the leader says of the group that
// this process belongs to, or else follows.
func (f *founding) own() standing { return standing{f.job.Label, f.hasRound, f.index} }

func (f *founding) standing() standing {
	if f.status.Member {
		return f.own()
	}
	return f.followedAs
}

// reaction is what a process does about another group that it has heard of.
type reaction int

const (
	stays     reaction = iota
	yields             // it follows the other group
	notifies           // it names its own group to the other one's leader, who may not know of it
	conflicts          // both groups go on
)

// judge decides what this process does about the announcement of another group. session is the instance of the store in
// which the agent has a session. news says that the latest announcement was of a third group.
func (f *founding) judge(
	now time.Time, other group.Announcement, its standing, session string,
) (does reaction, news bool) {
	if its.Label != f.job.Label {
		return stays, false
	}
	s, mine, at := f.status, f.standing(), f.addr
	if !s.Member {
		at = f.followed.Addr
	}
	following := f.followed.Instance != "" && (now.Sub(f.heardOf) < f.ttl || session == f.followed.Instance)
	knows := s.Member || following && f.followed.Instance != other.Instance
	leaderless := s.Member && s.Leader == "" && now.Sub(f.leaderless) >= f.ttl/2
	mayYield := f.atEndpoint() && (!s.Member || !f.hasRound) // only leaderless members leave a group with a round
	news = f.otherGroup != other.Instance
	f.otherGroup = other.Instance
	switch {
	case !f.closing && (leaderless || mayYield && (!knows || its.precedes(other.Addr, mine, at))):
		f.yielding = f.yielding || s.Member
		return yields, news
	case knows && mine.precedes(at, its, other.Addr) && (s.Leader != "" || now.Sub(f.firstHand) < lately):
		return notifies, news
	case s.Member:
		return conflicts, news
	}
	return stays, news
}

// lately is how old the news of a group may be that this process passes on: its leader announces it twice a second.
// What others have passed on is not: such news would go round when its group has ended.
const lately = 2 * time.Second

// follow records that this process has given up its own group for another one. as is what its leader says of it. Until
// this process learns who keeps the other group, it knows only who has announced it, and those that the file names.
func (f *founding) follow(now time.Time, other group.Announcement, as standing) {
	if !f.wasMember && f.earlier != nil {
		f.known, f.others = slices.Clone(f.earlier.Addrs), f.earlier.Others
	}
	if other.Addr != f.addr && !slices.Contains(f.known, other.Addr) {
		f.known = append(slices.Clip(f.known), other.Addr)
	}
	f.heardOf, f.yielding, f.wasMember = now, false, true
	f.followed, f.followedAs = other, as
	if !other.Relayed {
		f.firstHand = now
	}
}

// setKnown sets which other agents can keep the store, as far as this process knows. It returns a record for the next
// process at the endpoint, or nil if the last one is still right. mayGoOn says that the others can go on without a word
// of this process: of two agents, one votes. It also keeps the store alone until more can vote; then its guard can hand
// over to another one, see [Heirs].
func (f *founding) setKnown(addrs []string, others int) (record *earlierGroup, mayGoOn bool) {
	known := slices.DeleteFunc(slices.Clone(addrs), func(addr string) bool { return addr == f.addr })
	slices.Sort(known)
	known = slices.Compact(known)
	alone := f.status.Leading && len(f.status.Voters) == 1
	same := slices.Equal(known, f.known) && f.others == others && alone == f.alone
	f.known, f.others, f.alone = known, others, alone
	if same {
		return nil, false
	}
	return f.heirs(), !alone || len(known) > 1
}

// takeOverTime is how long after its leader's last word an agent may take over, if a session has this TTL. An agent at
// a further endpoint may begin another store foundDelay later, and the first round of one takes a session's time to
// begin, unless all nodes are there.
func takeOverTime(ttl time.Duration) time.Duration { return min(ttl/2, foundDelay*3/4) }

// mayTakeOver reports whether this process may take over the group in which its agent has a session. The agent sent the
// latest keep-alive that was answered so long ago.
func (f *founding) mayTakeOver(unanswered time.Duration) bool {
	return !f.closing && !f.yielding && unanswered < min(f.ttl, foundDelay*9/10)
}

// heirs returns a record of the agents that may go on without this process, or nil if there are none, or if there is no
// place for it.
func (f *founding) heirs() *earlierGroup {
	if !f.atEndpoint() || len(f.known) == 0 {
		return nil
	}
	return f.record()
}
