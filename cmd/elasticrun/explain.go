package main

import (
	"context"
	"errors"
	"io"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/listen"
	"github.com/elasticrun/elasticrun/internal/preview"
	"github.com/elasticrun/elasticrun/internal/workerspec"
	"github.com/elasticrun/elasticrun/pkg/agent"
)

// runExplain prints what a launch with these arguments would do.
func runExplain(args []string, stdout io.Writer) error {
	cfg, asJSON, err := config.LoadExplain(args, workerspec.Machine{})
	if err != nil {
		return err
	}
	return exitCode(explainLaunch(cfg, asJSON, stdout))
}

// explainLaunch prints what a launch would do and starts nothing. It returns the exit code. If the launch would be
// refused, the exit code and the last lines are those of the launch.
func explainLaunch(cfg *config.Config, asJSON bool, stdout io.Writer) int {
	plan, refusal, err := preview.Build(context.Background(), cfg, version)
	if err != nil {
		return fail(conclude(agent.RunResult{}, listen.Explain(cfg, err)))
	}
	end := conclude(agent.RunResult{}, listen.Explain(cfg, refusal))
	plan.Refusal = end.problem()
	if err := printResult(stdout, plan, asJSON); err != nil {
		return fail(conclude(agent.RunResult{}, err))
	}
	return fail(end)
}

// printResult prints found for people or as JSON. It is no error if the reader of stdout has gone.
func printResult(stdout io.Writer, found interface {
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
