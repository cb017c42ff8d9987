package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
)

func TestLoadSimulate(t *testing.T) {
	t.Setenv("LOGLEVEL", "error")
	defaults := Simulate{
		Agents: 100, MinNodes: 1, MaxNodes: 100, Rounds: 1, Voters: 1, KeepAlive: 5 * time.Second, Timeout: time.Minute,
		Seed:      1,
		LogFormat: "auto", LogLevel: zerolog.ErrorLevel,
	}
	for _, tt := range []struct {
		args   string
		change func(*Simulate)
	}{
		{"", func(*Simulate) {}},
		{"--agents=7", func(s *Simulate) { s.Agents, s.MaxNodes = 7, 7 }},
		{"--agents 7 --join 2 --rounds 3", func(s *Simulate) { s.Agents, s.Join, s.Rounds, s.MaxNodes = 7, 2, 3, 13 }},
		{"--nnodes=20:50 --kill=80", func(s *Simulate) { s.MinNodes, s.MaxNodes, s.Kill = 20, 50, 80 }},
		{"--nnodes=100", func(s *Simulate) { s.MinNodes, s.MaxNodes = 100, 100 }},
		{"--fail-after=0", func(s *Simulate) { s.FailAfter = new(time.Duration) }},
		{"--voters=5", func(s *Simulate) { s.Voters = 5 }},
		{"--leave=1 --cut=2 --seed=9", func(s *Simulate) { s.Leave, s.Cut, s.Seed = 1, 2, 9 }},
		{"--kill=50 --join=50 --rounds=4", func(s *Simulate) { s.Kill, s.Join, s.Rounds, s.MaxNodes = 50, 50, 4, 300 }},
		{"--keep-alive=0.5 --timeout 3 --json", func(s *Simulate) { s.KeepAlive, s.Timeout, s.JSON = time.Second/2, 3*time.Second, true }},
		{"--log-level=debug --log-format=json", func(s *Simulate) { s.LogLevel, s.LogFormat = zerolog.DebugLevel, "json" }},
	} {
		t.Run(tt.args, func(t *testing.T) {
			want := defaults
			tt.change(&want)
			got, err := LoadSimulate(strings.Fields(tt.args))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := LoadSimulate([]string{"-h"}); !errors.Is(err, ErrHelp) {
		t.Errorf("-h: %v, want ErrHelp", err)
	}
}

func TestLoadSimulateRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--agents=0":            "--agents=0: must be between 1 and 60000",
		"--agents=10 --kill=10": "--agents=10: too few: at some time 0 would be left, and the job needs 1",
		"--agents=10 --cut=3 --leave=3 --rounds=2":               "--agents=10: too few: at some time 0 would be left, and the job needs 1",
		"--agents=10 --kill=4 --join=3 --rounds=3 --nnodes=5:20": "--agents=10: too few: at some time 4 would be left, and the job needs 5",
		"--agents=10 --nnodes=11:20":                             "--agents=10: too few: at some time 10 would be left, and the job needs 11",
		"--nnodes=5:3":                                           "--nnodes=5:3: MIN must not be above MAX: did you mean 3:5?",
		"--fail-after=-1":                                        "--fail-after=-1: must not be negative",
		"--keep-alive=0":                                         "--keep-alive=0: must be above 0",
		"--voters=2":                                             "--voters=2: must be one of 1, 3, 5",
		"--rounds=0":                                             "--rounds=0: must be between 1 and 32767",
		"train.py":                                               "train.py: elasticrun simulate takes flags only",
		"--nproc-per-node=2":                                     "--nproc-per-node: unknown flag",
	} {
		_, err := LoadSimulate(strings.Fields(args))
		if bad := (*UsageError)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
