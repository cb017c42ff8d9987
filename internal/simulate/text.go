package simulate

import "fmt"

// Text describes the step in one line.
func (s Step) Text() string {
	line := fmt.Sprintf("%8.3f s  %d %s: round %d has %d nodes", s.Seconds, s.Agents, s.Name, s.Round, s.Nodes)
	if s.Stopped > 0 {
		line += fmt.Sprintf(", all stopped after %.3f s", s.Stopped)
	}
	return line + fmt.Sprintf("; the store received %d messages (%d KiB) and sent %d (%d KiB)",
		s.Received.Messages, s.Received.Bytes>>10, s.Sent.Messages, s.Sent.Bytes>>10)
}

// UsageText describes the usage of both processes, one in a line.
func (r Result) UsageText() string {
	line := func(name string, u Usage) string {
		return fmt.Sprintf("%-17s %7.3f s of CPU, at most %d MiB\n", name, u.CPU, u.RSS>>20)
	}
	return line("store and leader", r.Store) + line("agents", r.Swarm)
}
