package doctor

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/caller"
	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/logging"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/agent"
)

// Preflight runs the checks of --preflight and --preflight-cmd before this node joins the job. If a check fails it
// returns an *agent.UnfitError.
func Preflight(ctx context.Context, cfg *config.Config, version string, log zerolog.Logger) error {
	if cfg.Preflight {
		f, err := read(ctx, cfg, version, false)
		switch {
		case ctx.Err() != nil: // it may have caused err
			return context.Cause(ctx)
		case err != nil:
			return err
		}
		// The launch itself reports ports and stores that it cannot use: it first waits a moment for the store of a job
		// that has just ended.
		f.PortErr, f.Refusal = nil, nil
		f.Admission = config.Admission{} // the agent that hosts the store warns
		r := newReport(f, version)
		for _, c := range r.with(Warn) {
			if slices.Contains(cfg.Warnings, c.Value) { // the launch has logged it
				continue
			}
			line := log.Warn().Str("check", c.Name)
			if c.Advice != "" {
				line = line.Str("advice", c.Advice)
			}
			line.Msg(c.Value)
		}
		if err := r.Err(); err != nil {
			return err
		}
	}
	if site := NewSiteCheck(cfg, log); site != nil {
		if err := site.Check(ctx); err != nil && ctx.Err() == nil {
			return &agent.UnfitError{Err: err}
		}
	}
	return context.Cause(ctx)
}

// SiteCheck runs --preflight-cmd. It implements agent.Fitness.
type SiteCheck struct {
	command string
	timeout time.Duration
	env     []string
	log     zerolog.Logger
}

// NewSiteCheck returns nil if there is no --preflight-cmd.
func NewSiteCheck(cfg *config.Config, log zerolog.Logger) *SiteCheck {
	if cfg.PreflightCmd == "" {
		return nil
	}
	return &SiteCheck{
		command: cfg.PreflightCmd, timeout: cfg.PreflightTimeout,
		env: caller.Without(config.WithoutSecrets(os.Environ())), log: log,
	}
}

// Check runs the command. It logs the last line of a successful command at any level; the error of a failed one has it.
func (s *SiteCheck) Check(ctx context.Context) error {
	began := time.Now()
	last, err := output(ctx, s.timeout, s.env, "sh", "-c", s.command)
	if err != nil {
		return fmt.Errorf("--preflight-cmd=%s: %w", s.command, err)
	}
	logging.Always(s.log).
		Str("took", seconds.Format(time.Since(began))).Str("output", last).Msg("the preflight command succeeded")
	return nil
}
