package main

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	getenv := environment(map[string]string{"RANK": "2", "WORLD_SIZE": "4", "TORCHELASTIC_RESTART_COUNT": "1"})
	got, err := parse(strings.Fields("--checkpoint-dir /c --checkpoint-every 5 --report-every 7 --steps 90 --data /d --kill-at 35 --kill-rank 3"), getenv)
	if err != nil {
		t.Fatal(err)
	}
	want := options{
		data: "/d", checkpointDir: "/c", checkpointEvery: 5, reportEvery: 7, steps: 90, killAt: 35, killRank: 3,
		rank: 2, worldSize: 4, attempt: 1,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{})); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, args string
		env        map[string]string // in addition to rank 0 of 4
		want       string
	}{
		{name: "unknown option", args: "--rate 1", want: "flag provided but not defined: -rate"},
		{name: "argument", args: "weights", want: `"weights" is not an option; the program takes no other arguments`},
		{name: "no folder", want: "--checkpoint-dir is missing: name a folder for the checkpoint"},
		{name: "no step", args: "--checkpoint-dir d --steps 0", want: "--steps is 0: want 1 or more"},
		{name: "no checkpoint", args: "--checkpoint-dir d --checkpoint-every -1", want: "--checkpoint-every is -1: want 1 or more"},
		{name: "no report", args: "--checkpoint-dir d --report-every 0", want: "--report-every is 0: want 1 or more"},
		{name: "death after the end", args: "--checkpoint-dir d --kill-at 61", want: "--kill-at is 61: want a step from 1 to 60"},
		{name: "death of an unknown rank", args: "--checkpoint-dir d --kill-rank 4", want: "--kill-rank is 4: want a rank from 0 to 3"},
		{name: "no launcher", args: "--checkpoint-dir d", env: map[string]string{"RANK": ""}, want: "RANK is not set: start this program with elasticrun --no-python"},
		{name: "rank", args: "--checkpoint-dir d", env: map[string]string{"RANK": "first"}, want: `RANK is "first": want a number`},
		{name: "rank too high", args: "--checkpoint-dir d", env: map[string]string{"RANK": "4"}, want: "RANK is 4: want a rank from 0 to 3"},
		{
			name: "no trainer", args: "--checkpoint-dir d", env: map[string]string{"WORLD_SIZE": "1"},
			want: "WORLD_SIZE is 1: want 2 or more, for a server and trainers, such as --nproc-per-node 2",
		},
		{
			name: "attempt", args: "--checkpoint-dir d", env: map[string]string{"TORCHELASTIC_RESTART_COUNT": "1.5"},
			want: `TORCHELASTIC_RESTART_COUNT is "1.5": want a number`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"RANK": "0", "WORLD_SIZE": "4"}
			maps.Copy(env, tc.env)
			_, err := parse(strings.Fields(tc.args), environment(env))
			if !errors.As(err, &inputError{}) {
				t.Fatalf("%v is not an inputError", err)
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// --kill-at does not affect other ranks, steps and attempts.
func TestDieIfRequested(t *testing.T) {
	t.Parallel()
	for _, o := range []options{
		{killAt: 35, killRank: 2, rank: 1},
		{killAt: 36, killRank: 2, rank: 2},
		{killAt: 35, killRank: 2, rank: 2, attempt: 1},
		{killRank: 2, rank: 2},
	} {
		var out strings.Builder
		if err := o.killIfRequested(35, &out); err != nil || out.Len() > 0 {
			t.Errorf("%+v: %v, %q", o, err, out.String())
		}
	}
}
