package rounds

// publishWaiting writes how many nodes came too late for the running round and would be in the next one.
func (l *Leader) publishWaiting() {
	n := 0
	if l.state == running && !l.job.Static {
		n = max(0, l.nextSize(len(l.round.members)+l.participants.eligible)-len(l.round.members))
	}
	switch n {
	case l.waiting:
		return
	case 0:
		l.writes = append(l.writes, Write{Key: KeyWaiting})
	default:
		l.writes = append(l.writes, Write{Key: KeyWaiting, Value: n})
	}
	l.waiting = n
}
