package preview

import (
	"fmt"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/procs"
)

// preemption says what preempts the job and what follows; empty if nothing does.
func preemption(c *config.Config) string {
	if len(c.PreemptSignals) == 0 {
		return ""
	}
	var names []string
	for _, sig := range c.PreemptSignals {
		names = append(names, procs.SignalName(sig))
	}
	left, why := c.PreemptNotice, ""
	if left > 0 {
		why = fmt.Sprintf(" (the node is taken away after %s)", seconds.Format(left))
	} else if !c.Deadline.IsZero() {
		why = " (less towards the end of the Slurm job, " + c.Deadline.Format(time.DateTime) + ")"
	}
	save := agent.SaveTime(c.PreemptGrace, c.ShutdownTimeout, left)
	return fmt.Sprintf("%s: workers have %s to save%s; exit code %d", strings.Join(names, ", "), seconds.Format(save), why,
		c.PreemptExitCode)
}
