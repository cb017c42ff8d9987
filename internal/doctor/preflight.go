package doctor

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/agent"
)

// Preflight checks this machine before its node joins the job. Its error, if a check failed, is an *agent.UnfitError.
func Preflight(ctx context.Context, cfg *config.Config, version string, log zerolog.Logger) error {
	if cfg.Preflight {
		f, err := Examine(ctx, cfg, version)
		switch {
		case ctx.Err() != nil: // whatever it has led to
			return context.Cause(ctx)
		case err != nil:
			return err
		}
		// What the launch refuses by itself is left to it: it waits a moment for the store of a job that has just ended.
		f.PortErr, f.Refusal = nil, nil
		r := NewReport(f, version)
		for _, c := range r.With(Warn) {
			log.Warn().Str("check", c.Name).Str("advice", c.Advice).Msg(c.Value)
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

// SiteCheck is the site's own check of a machine; it implements agent.Fitness.
type SiteCheck struct {
	command string
	bound   time.Duration
	env     []string
	log     zerolog.Logger
}

// NewSiteCheck is nil where there is none.
func NewSiteCheck(cfg *config.Config, log zerolog.Logger) *SiteCheck {
	if cfg.PreflightCmd == "" {
		return nil
	}
	return &SiteCheck{command: cfg.PreflightCmd, bound: cfg.PreflightTimeout, env: config.WithoutSecrets(os.Environ()), log: log}
}

// Check runs the command. The last line of its output is shown, at any log level, whether it fails or not.
func (s *SiteCheck) Check(ctx context.Context) error {
	began := time.Now()
	last, err := Output(ctx, s.bound, s.env, "sh", "-c", s.command)
	if err != nil {
		return fmt.Errorf("--preflight-cmd=%s: %w", s.command, err)
	}
	s.log.Log().Str(zerolog.LevelFieldName, zerolog.LevelInfoValue).Stringer("took", time.Since(began).Round(time.Millisecond)).Str("output", last).Msg("the preflight command has ended with 0")
	return nil
}
