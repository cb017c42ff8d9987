package main

import (
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/filetimer"
	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/internal/workerspec"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/procs"
)

// openTimers starts torch's file timer if the user turned it on. The timers stand still while workers are suspended.
func (p *plan) openTimers(cfg *config.Config, workers *procs.Suspension, log zerolog.Logger) {
	if !cfg.TorchAgent.FileTimer {
		return
	}
	var err error
	if p.timers, err = filetimer.Open(cfg.TorchAgent.TimerFile, workers.Suspended, log); err != nil {
		log.Warn().Err(err).Msg("there is no file timer: workers that want to set one may fail")
		return
	}
	p.env = workerspec.WithTimerFile(p.env, p.timers.Path())
}

// timers adapts a filetimer.Server to the agent.
type timers struct{ *filetimer.Server }

// Take implements agent.Timers.
func (t timers) Take() []agent.TimerExpiry {
	var all []agent.TimerExpiry
	for _, x := range t.Server.Take() {
		all = append(all, agent.TimerExpiry{
			PID: x.PID, Scope: printable.Quote(x.Scope), Signal: x.Signal, Set: x.Set, After: x.After,
		})
	}
	return all
}
