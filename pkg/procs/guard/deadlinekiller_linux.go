package guard

import (
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/siginfo"
	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// maxKillPause is the longest pause between two scans for workers that do not die.
const maxKillPause = time.Second

// deadlineKiller kills the workers of an agent that missed its deadline. The agent may be stopped, so dead workers stay
// zombies, and ECHILD cannot prove that nothing is left. The zero value does nothing.
type deadlineKiller struct {
	child *child           // the agent
	again <-chan time.Time // when to scan again; nil once the agent has set its deadline again
	pause time.Duration
}

// begin kills the workers, notifies the agent, and returns how many live processes it found. It scans before it
// notifies, because an agent that was notified may start new workers. If /proc does not show the workers, begin kills
// the agent, which ends them as well.
func (k *deadlineKiller) begin(c *child) int {
	*k = deadlineKiller{child: c, pause: proctree.KillInterval}
	if !proctree.ProcIsOurs() {
		c.signal(syscall.SIGKILL, siginfo.Origin{})
		return 1
	}
	left := k.scan()
	c.link.notifyKilled()
	k.kill(left)
	return len(left)
}

// active reports whether begin has killed the workers of a deadline that the agent has not set again.
func (k *deadlineKiller) active() bool { return k.again != nil }

// repeat kills the processes that it finds now, unless the agent has set its deadline again: then the workers are the
// agent's, and there may be new ones. It checks that after the scan, so the scan has none of the new ones. It repeats
// until then, because an agent that was stopped in the middle of a start may fork once more when it continues.
func (k *deadlineKiller) repeat() {
	left := k.scan()
	k.again = nil
	if _, missed := k.child.timer.passed(); missed {
		k.kill(left)
	}
}

// scan finds every live descendant except the agent. One scan may miss a process whose parent is reaped meanwhile.
func (k *deadlineKiller) scan() []proctree.Process {
	all, _ := proctree.All() // the next scan tries again
	left := proctree.Descendants(os.Getpid(), all, func(proctree.Process) bool { return true })
	return slices.DeleteFunc(left, func(p proctree.Process) bool { return p.PID == k.child.pid || p.Dead() })
}

// kill sends SIGKILL to left. If left has processes, the next scan comes soon.
func (k *deadlineKiller) kill(left []proctree.Process) {
	for _, p := range left {
		p.Signal(syscall.SIGKILL)
	}
	if len(left) > 0 {
		k.pause = proctree.KillInterval
	}
	k.again = time.After(k.pause)
	k.pause = min(2*k.pause, maxKillPause)
}
