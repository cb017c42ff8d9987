package config

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/printable"
)

// The variables that torchrun's agent reads itself, so that they have no flags (torch 2.14,
// torch/distributed/elastic/agent/server/local_elastic_agent.py).
const (
	fileTimerEnv = "TORCHELASTIC_ENABLE_FILE_TIMER"
	timerFileEnv = "TORCHELASTIC_TIMER_FILE"

	healthPortEnv      = "TORCHELASTIC_HEALTH_CHECK_PORT"
	uninterruptibleEnv = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"
)

// maxSeconds is the first number of seconds that counts as forever: 100 years.
const maxSeconds = 100 * 365 * 24 * 3600

// TorchAgent holds the values of these variables. A value that torchrun would ignore causes a warning.
type TorchAgent struct {
	// FileTimer says that the agent serves the timers of workers. TimerFile is the path of its FIFO; empty for a new one.
	FileTimer bool
	TimerFile string
	// HealthPort is the port on which health checks are answered, 0 for any free one; nil for none.
	HealthPort *int
	// UninterruptibleTimeout is how long a worker may be in an uninterruptible sleep; 0 for no limit.
	UninterruptibleTimeout time.Duration
}

// readTorchAgent reads the variables of torchrun's agent.
func (c *Config) readTorchAgent(r *reader, from surroundings) {
	get := func(name string) string {
		value, _ := from.env(name)
		return strings.TrimSpace(value)
	}
	warn := func(name, value, problem string) {
		r.warnings = append(r.warnings, name+"="+printable.Quote(value)+": "+problem)
	}
	switch value := get(fileTimerEnv); value {
	case "1":
		c.TorchAgent.FileTimer = true
		c.TorchAgent.TimerFile, _ = from.env(timerFileEnv)
	case "", "0":
	default:
		warn(fileTimerEnv, value, "only 1 turns the file timer on, as with torchrun")
	}
	if value := get(healthPortEnv); value != "" {
		if port, err := strconv.Atoi(value); err == nil && port >= 0 && port <= math.MaxUint16 {
			c.TorchAgent.HealthPort = &port
		} else {
			warn(healthPortEnv, value, "not a port between 0 and 65535, so health checks are not answered")
		}
	}
	if value := get(uninterruptibleEnv); value != "" {
		seconds, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil || math.IsNaN(seconds):
			warn(uninterruptibleEnv, value, "not a number of seconds, so workers may sleep in the kernel for any time")
		case seconds > 0 && seconds < maxSeconds:
			c.TorchAgent.UninterruptibleTimeout = time.Duration(seconds * float64(time.Second))
		}
	}
}
