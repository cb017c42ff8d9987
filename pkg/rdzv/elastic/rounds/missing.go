package rounds

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// While too few nodes have come, the leader says which ones are missing, and why if it knows.

// missingNodes describes the nodes that the next round lacks. The text continues a message such as "2 of 3 nodes have
// joined". It and each of its parts may be empty.
func (l *Leader) missingNodes() string {
	return l.missingRanks() + l.duplicateRanks() + l.goneMembers() + l.unknownMembers()
}

// duplicateRanks names the nodes of a job with static ranks that cannot be in a round, because another node has the
// same rank or because they have none; empty if there are none.
func (l *Leader) duplicateRanks() string {
	if !l.job.Static {
		return ""
	}
	hosts := map[int][]string{}
	for _, p := range l.participants.byID {
		if rank := max(-1, p.report.Node.Hint); p.counted.matching && !p.superseded {
			hosts[rank] = append(hosts[rank], p.report.Node.Host)
		}
	}
	var texts []string
	for _, rank := range slices.Sorted(maps.Keys(hosts)) {
		on := hosts[rank]
		slices.Sort(on)
		switch {
		case rank < 0:
			texts = append(texts, "no node rank is given on "+joinSome(on, ", "))
		case len(on) > 1:
			texts = append(texts, fmt.Sprintf("%d nodes have node rank %d, on %s", len(on), rank, joinSome(on, ", ")))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s: give each node its own --node-rank from 0 to %d", joinSome(texts, ", "), l.job.Max-1)
}

// goneMembers names the members of the last round that have finished, were lost or have left, and have not come back;
// empty if there are none. Members that had finished may have left the exit barrier without an answer of the leader.
func (l *Leader) goneMembers() string {
	var finished, gone []string
	for rank, m := range l.round.members {
		switch {
		case m.participant != nil || l.participants.byIdentity[l.record.Members[rank].Identity] != nil:
		case m.status == done:
			finished = append(finished, l.nodeOf(rank))
		case m.status == lost:
			gone = append(gone, l.nodeOf(rank)+" was lost")
		case m.status == left:
			gone = append(gone, l.nodeOf(rank)+" has left")
		}
	}
	text := ""
	if len(gone) > 0 {
		text = "; " + joinSome(gone, ", ")
	}
	if len(finished) > 0 {
		text += "; " + joinSome(finished, ", ") + " had finished and may have left with success; whether it comes back is " +
			"not known: if it has left, start the job again on all nodes"
	}
	return text
}

// unknownMembers says that an earlier store of the run had members that this one does not know; empty if it had none.
func (l *Leader) unknownMembers() string {
	for _, p := range l.participants.byID {
		if p.report.HadRound && !l.hasRound {
			return "; nodes that had finished before the job lost its store may have left with success: if so, start the " +
				"job again on all nodes"
		}
	}
	return ""
}

// missingRanks names the node ranks that no node has yet; empty unless the number of nodes to come and their ranks are
// known.
func (l *Leader) missingRanks() string {
	n := l.job.Expected
	if l.job.Static || l.job.Min == l.job.Max {
		n = l.job.Max
	}
	present := make([]bool, n)
	for _, p := range l.participants.byID {
		hint := p.report.Node.Hint
		switch {
		case !p.counted.eligible:
		case hint >= 0 && hint < n && (!present[hint] || l.job.Static):
			present[hint] = true
		case !l.job.Static:
			return "" // the node has no hint, one that is too high, or that of another node
		}
	}
	if text := absentRanks(present); text != "" {
		return ", missing node ranks " + text
	}
	return ""
}

// absentRanks lists the ranks that are not present, such as "2, 5-7".
func absentRanks(present []bool) string {
	var texts []string
	for i := 0; i < len(present); i++ {
		if present[i] {
			continue
		}
		if len(texts) == maxNamed {
			texts = append(texts, "...")
			break
		}
		first := i
		for i+1 < len(present) && !present[i+1] {
			i++
		}
		if texts = append(texts, strconv.Itoa(first)); i > first {
			texts[len(texts)-1] += "-" + strconv.Itoa(i)
		}
	}
	return strings.Join(texts, ", ")
}
