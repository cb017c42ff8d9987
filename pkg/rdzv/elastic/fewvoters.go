package elastic

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord/group"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// Too few voters
//
// A job's store has one voter until two other agents help to keep it, usually within a second of the first round. If no
// other agents come to help, nobody notices until the voter is lost and the job ends. So the agent of the leading voter
// logs the shortage early. It also does so if some of the voters do not reach each other.

// fewVotersAfter is how long the store may have too few voters before the agent that leads logs it. The actual time is
// at least the keep-alive time, because a lost node counts as able to keep the store for that long.
const fewVotersAfter = 10 * time.Second

// shortage is why the store has too few voters, or does not survive the loss of one of them.
type shortage int

const (
	noShortage       shortage = iota
	shortOfNodes              // there are too few nodes that can keep the store
	shortOfReachable          // there are enough, but they do not keep it: usually they cannot be reached
	shortOfPaths              // there are enough voters, but some of them do not reach each other
)

// shortageOf returns what a group with a round lacks to survive a loss. Only the group's leader knows; other members
// get noShortage. A job of at most two nodes cannot have more voters, so it has no shortage.
func shortageOf(s group.Status, candidates, maxNodes int) shortage {
	switch {
	case !s.Leading || maxNodes < rounds.MinVoters:
		return noShortage
	case len(s.Voters) >= rounds.MinVoters && len(s.Apart) > 0:
		return shortOfPaths
	case len(s.Voters) >= rounds.MinVoters:
		return noShortage
	case candidates < rounds.MinVoters:
		return shortOfNodes
	}
	return shortOfReachable
}

// voterWatch decides when to log a shortage: once it has lasted. The same shortage is logged again only if the store
// could survive a loss in between.
type voterWatch struct {
	now   shortage
	said  [shortOfPaths + 1]bool
	timer *time.Timer // nil unless now may be said later
	// enough says that the store had enough voters once, as far as this process knows as its leader.
	enough bool
}

// observe records the present shortage. It calls later once the shortage has lasted for wait, unless it was logged
// already.
func (w *voterWatch) observe(now shortage, enough bool, wait time.Duration, later func()) {
	if enough {
		w.enough = true
		w.said = [shortOfPaths + 1]bool{}
	}
	if now == w.now {
		return
	}
	w.now = now
	w.stop()
	if now != noShortage && !w.said[now] {
		w.timer = time.AfterFunc(wait, later)
	}
}

func (w *voterWatch) stop() {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// watchVoters updates m.voters after each change of what shortageOf depends on. m.mu is held.
func (m *storeMember) watchVoters() {
	now := noShortage
	if m.HasRound && !m.Closing && !m.acknowledged {
		now = shortageOf(m.Status, len(m.candidates), m.access.MaxNodes)
	}
	former := m.voters.now
	enough := m.Status.Leading && m.Status.SurvivesLoss
	m.voters.observe(now, enough, max(fewVotersAfter, m.access.TTL), m.sayFewVoters)
	switch {
	case now == shortOfPaths && m.voters.said[now]: // the voters concerned may have changed
		m.problem = listed(m.Status.Apart)
	case now != former:
		m.problem = ""
	}
}

// sayFewVoters logs that the store has had too few voters for a while.
func (m *storeMember) sayFewVoters() {
	unreached := m.member.Unreached()
	m.mu.Lock()
	now := m.voters.now
	if m.voters.timer == nil || now == noShortage { // the shortage has ended meanwhile
		m.mu.Unlock()
		return
	}
	m.voters.timer, m.voters.said[now] = nil, true
	switch now {
	case shortOfReachable:
		m.problem = problemOf(unreached)
	case shortOfPaths:
		m.problem = listed(m.Status.Apart)
	}
	problem, survived := m.problem, m.voters.enough
	m.mu.Unlock()
	const alone = "only this node keeps the job's store, and its loss would end the job"
	advice := memberPortsAdvice(m.access.MemberPorts)
	switch now {
	case shortOfNodes:
		level := zerolog.InfoLevel
		if survived {
			level = zerolog.WarnLevel
		}
		m.log.WithLevel(level).Msgf("%s: any one node may be lost once three can keep it", alone)
		return
	case shortOfPaths:
		m.log.Warn().Msgf("the loss of this node may end the job, though others keep its store too: %s; %s", problem, advice)
	default:
		m.log.Warn().Msgf("%s: %s; %s", alone, problem, advice)
	}
	m.wakeLeader() // the leader publishes the problem to the other nodes
}

// memberPortsAdvice says how to make the nodes that offer to keep the store reachable. ports are those that this node's
// agent may use to keep the store.
func memberPortsAdvice(ports machine.Ports) string {
	if ports.High > ports.Low {
		return fmt.Sprintf("open ports %s between the nodes", ports)
	}
	return "open the ports between the nodes, or give all nodes a range of open ones by --worker-store-port=LOW-HIGH"
}

// maxListed is how many addresses a line names.
const maxListed = 4

// problemOf says, after the name of the node that leads, why the others that offer to keep the store do not.
func problemOf(unreached []group.Unreached) string {
	if len(unreached) == 0 {
		return "other nodes offer to keep it too, but do not yet"
	}
	texts := make([]string, len(unreached))
	reason, same := group.Reason(unreached[0].Err), true
	for i, u := range unreached {
		texts[i] = fmt.Sprintf("%s (%s)", u.Addr, group.Reason(u.Err))
		same = same && group.Reason(u.Err) == reason
	}
	if same {
		for i, u := range unreached {
			texts[i] = u.Addr
		}
	}
	text := "it cannot reach the nodes that offer to keep it too, at " + listed(texts)
	if same {
		text += ": " + reason
	}
	return text
}

// listed names the first of some texts, and how many more there are.
func listed(texts []string) string {
	if more := len(texts) - maxListed; more > 0 {
		texts = append(slices.Clone(texts[:maxListed]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}
