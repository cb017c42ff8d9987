package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/logging"
	"github.com/elasticrun/elasticrun/internal/simulate"
)

// swarmWord begins the arguments of the agents' process.
const swarmWord = "agents"

// simulation runs a simulation.
func simulation(args []string, stdout io.Writer) error {
	isSwarm := len(args) > 0 && args[0] == swarmWord
	flags := args
	if isSwarm {
		flags = args[1:]
	}
	cfg, err := config.LoadSimulate(flags)
	switch {
	case err != nil:
		return err
	case isSwarm:
		return simulateAgents(cfg)
	default:
		return simulateJob(cfg, append([]string{os.Args[0], "simulate", swarmWord}, flags...), stdout)
	}
}

// simulateAgents is the agents' process. It ends when the other one closes its stdin, whatever becomes of that.
func simulateAgents(cfg *config.Simulate) error {
	log, lines := logging.New(cfg.LogFormat, cfg.LogLevel, os.Stderr, nil)
	defer func() { _ = lines.Close() }()
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP) // a terminal's are for both
	return simulate.Agents(context.Background(), os.Stdin, os.Stdout, log)
}

// simulateJob simulates, with swarm as the command of the agents' process.
func simulateJob(cfg *config.Simulate, swarm []string, stdout io.Writer) error {
	log, lines := logging.New(cfg.LogFormat, cfg.LogLevel, os.Stderr, nil)
	defer func() { _ = lines.Close() }()
	most, err := simulate.MostAgents()
	if err != nil {
		return err
	}
	if n := cfg.Agents + cfg.Rounds*cfg.Join; n > most {
		return &config.UsageError{Where: fmt.Sprintf("--agents=%d", cfg.Agents), Problem: fmt.Sprintf(
			"each of the %d agents needs an open file, and there may be %d here: see ulimit -n", n, most)}
	}
	ctx, signals := handleSignals(storeSignals(), storeSignals(), 0, nil)
	defer signals.stop()
	o := simulate.Options{
		Agents: cfg.Agents, Min: cfg.MinNodes, Max: cfg.MaxNodes, Rounds: cfg.Rounds, FailAfter: cfg.FailAfter,
		Kill: cfg.Kill, Leave: cfg.Leave, Cut: cfg.Cut, Join: cfg.Join,
		KeepAlive: cfg.KeepAlive, Timeout: cfg.Timeout, Seed: uint64(cfg.Seed), Logger: log,
	}
	if !cfg.JSON {
		o.Step = func(s simulate.Step) { fmt.Fprintln(stdout, stepLine(s)) }
	}
	result, err := simulate.Run(ctx, o, swarm)
	switch {
	case err != nil:
		return fmt.Errorf("simulate: %w", err)
	case cfg.JSON:
		return json.NewEncoder(stdout).Encode(result)
	}
	for _, p := range []struct {
		name string
		simulate.Usage
	}{{"store and leader", result.Store}, {"agents", result.Swarm}} {
		fmt.Fprintf(stdout, "%-17s %7.3f s of CPU, %d MiB at most\n", p.name, p.CPU, p.RSS>>20)
	}
	return nil
}

// stepLine says what a step was and what it took.
func stepLine(s simulate.Step) string {
	line := fmt.Sprintf("%8.3f s  %d %s: round %d has %d nodes", s.Seconds, s.Agents, s.Name, s.Round, s.Nodes)
	if s.Stopped > 0 {
		line += fmt.Sprintf(", all told to stop after %.3f s", s.Stopped)
	}
	return line + fmt.Sprintf("; the store received %d messages (%d KiB) and sent %d (%d KiB)",
		s.Received.Messages, s.Received.Bytes>>10, s.Sent.Messages, s.Sent.Bytes>>10)
}
