package main

import (
	"context"
	"errors"
	"io"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/launch"
	"github.com/elasticrun/elasticrun/internal/listen"
	"github.com/elasticrun/elasticrun/internal/preview"
	"github.com/elasticrun/elasticrun/pkg/agent"
)

// explainCommand says what the launch would do whose arguments these are.
func explainCommand(args []string, stdout io.Writer) error {
	cfg, asJSON, err := config.LoadExplain(args, launch.Machine{})
	if err != nil {
		return err
	}
	return exitCode(explainLaunch(cfg, asJSON, stdout))
}

// explainLaunch says what a launch would do, and does nothing of it. It returns the exit code: 2, with the launch's own line, where that would be refused.
func explainLaunch(cfg *config.Config, asJSON bool, stdout io.Writer) int {
	plan, refusal, err := preview.Build(context.Background(), cfg, version)
	if err != nil {
		return fail(conclude(agent.RunResult{}, listen.Explain(cfg, err)))
	}
	end := conclude(agent.RunResult{}, listen.Explain(cfg, refusal))
	plan.Refusal = end.problem()
	if err := write(stdout, plan, asJSON); err != nil {
		return fail(conclude(agent.RunResult{}, err))
	}
	return fail(end)
}

// write writes what has been found out, for people or as JSON. A reader who has gone has seen enough.
func write(stdout io.Writer, found interface {
	Text() string
	JSON() ([]byte, error)
}, asJSON bool,
) error {
	text := []byte(found.Text())
	if asJSON {
		var err error
		if text, err = found.JSON(); err != nil {
			return err
		}
	}
	if _, err := stdout.Write(text); err != nil && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	return nil
}
