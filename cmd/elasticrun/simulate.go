package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/logging"
	"github.com/elasticrun/elasticrun/internal/simulate"
)

// agentsWord is the first argument of the agents' process.
const agentsWord = "agents"

// runSimulate runs a simulation, or the agents' process of one.
func runSimulate(args []string, stdout io.Writer) error {
	flags, isAgents := args, false
	if len(args) > 0 && args[0] == agentsWord {
		flags, isAgents = args[1:], true
	}
	cfg, err := config.LoadSimulate(flags)
	if err != nil {
		return err
	}
	log, lines := logging.New(cfg.LogFormat, cfg.LogLevel, os.Stderr, nil)
	defer func() { _ = lines.Close() }()
	if isAgents {
		signal.Ignore(syscall.SIGINT, syscall.SIGHUP) // a terminal sends them to both processes
		return simulate.Agents(context.Background(), os.Stdin, os.Stdout, log)
	}
	ctx, signals := handleSignals(storeSignals(), storeSignals(), nil, 0, nil)
	defer signals.stop()
	o := simulate.Options{
		Agents: cfg.Agents, Min: cfg.MinNodes, Max: cfg.MaxNodes, Rounds: cfg.Rounds, FailAfter: cfg.FailAfter,
		Kill: cfg.Kill, Leave: cfg.Leave, Cut: cfg.Cut, Join: cfg.Join, Voters: cfg.Voters,
		KeepAlive: cfg.KeepAlive, Timeout: cfg.Timeout, Seed: uint64(cfg.Seed), Logger: log,
	}
	if !cfg.JSON {
		o.Step = func(s simulate.Step) { fmt.Fprintln(stdout, s.Text()) }
	}
	result, err := simulate.Run(ctx, o, append([]string{os.Args[0], "simulate", agentsWord}, flags...))
	switch problem, ok := errors.AsType[*simulate.TooManyAgentsError](err); {
	case ok:
		return &config.UsageError{Where: fmt.Sprintf("--agents=%d", cfg.Agents), Problem: problem.Error()}
	case err != nil:
		return fmt.Errorf("simulate: %w", err)
	case cfg.JSON:
		return json.NewEncoder(stdout).Encode(result)
	}
	fmt.Fprint(stdout, result.UsageText())
	return nil
}
