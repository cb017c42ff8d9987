package tcpstore

// A connection on which the client never sent anything costs a file and a little memory, and anybody can make one. So
// there is a limit on how many there are. There is none on how long each stays: torch before 2.1 sends nothing until
// the script uses the store.

// mostSilent is enough for the agents of a large job that connect at the same moment. There are also at most a quarter
// of the process's files.
const mostSilent = 16 << 10

// addSilent counts the new connection c. If there are too many, it closes some of the oldest.
func (l *loop) addSilent(c *conn) {
	c.silent = l.silent.PushBack(c)
	if l.silent.Len() > l.maxSilent {
		l.evict(1+l.maxSilent/16, c) // several, because evict looks at all connections
	}
}

// removeSilent is called when the client of c sends something or c is closed.
func (l *loop) removeSilent(c *conn) {
	if c.silent != nil {
		l.silent.Remove(c.silent)
		c.silent = nil
	}
}
