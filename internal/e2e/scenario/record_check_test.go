package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// history writes the record of a sound job: rounds of the given world sizes, ten steps each, one worker on each host.
// The last step of each round was not saved.
func history(worlds ...int) []line {
	var lines []line
	step := 1
	for i, world := range worlds {
		for s := range 11 {
			for rank := range world {
				l := line{
					Time: float64(10*i) + 0.5*float64(s) + 0.01*float64(rank), Round: i + 1, World: world,
					Rank: rank, Group: rank, Host: fmt.Sprintf("node%d", rank), PID: 100*i + rank, Event: "start",
				}
				if s > 0 {
					l.Event, l.Step, l.Loss = "step", step+s-1, lossOf(step+s-1)
				}
				lines = append(lines, l)
			}
		}
		step += 9
	}
	return lines
}

func lossOf(step int) float64 { return 1 / float64(step+1) }

func TestCheck(t *testing.T) {
	var losses []float64
	for step := range 100 {
		losses = append(losses, lossOf(step))
	}
	// change returns a history with some lines changed.
	change := func(which func(l line) bool, to func(l *line)) []line {
		lines := history(4, 3)
		for i := range lines {
			if which(lines[i]) {
				to(&lines[i])
			}
		}
		return lines
	}
	without := func(which func(l line) bool) []line { return slices.DeleteFunc(history(4, 3), which) }
	second := func(l line) bool { return l.Round == 2 }
	tests := []struct {
		name  string
		lines []line
		want  []string
	}{
		{name: "sound", lines: history(4, 3)},
		{name: "the last step was saved", lines: without(func(l line) bool { return l.Round == 1 && l.Step == 10 })},
		{
			name: "a worker lags when it is killed", lines: without(func(l line) bool { return l.Round == 1 && l.Step == 10 && l.Rank == 2 }),
		},
		{
			name: "a checkpoint was lost", lines: change(second, func(l *line) { l.Step--; l.Loss = lossOf(l.Step) }),
			want: []string{"round 2 goes on with step 9 after step 10", "the last step is 18, want 19"},
		},
		{
			name: "all was lost", lines: change(func(l line) bool { return l.Round == 2 && l.Event == "step" }, func(l *line) { l.Step -= 9; l.Loss = lossOf(l.Step) }),
			want: []string{"round 2 goes on with step 1 after step 10", "the last step is 10, want 19"},
		},
		{
			name: "a step was left out", lines: without(func(l line) bool { return l.Step == 14 && l.Rank == 1 }),
			want: []string{"round 2: rank 1 made step 15 after step 13"},
		},
		{
			name: "the ranks differ", lines: without(func(l line) bool { return l.Round == 2 && l.Step == 10 && l.Rank == 1 }),
			want: []string{"round 2: rank 1 made step 11 after step 0"},
		},
		{
			name: "the loss jumps", lines: change(func(l line) bool { return l.Step == 14 && l.Rank == 2 }, func(l *line) { l.Loss += 1e-6 }),
			want: []string{"round 2: rank 2 has loss 0.06666766666666667 in step 14, unlike an undisturbed run"},
		},
		{
			name: "a straggler", lines: change(func(l line) bool { return l.Round == 1 && l.Step == 10 && l.Rank == 3 }, func(l *line) { l.Time = 10.2 }),
			want: []string{"round 2 began at 10.000 on node0, before the end of round 1 at 10.200 on node3"},
		},
		{
			name: "an overlap", lines: append(history(4, 3), line{Event: "overlap", Time: 20, Round: 3, World: 3, Host: "node0", Other: 2, Holder: 101}),
			want: []string{"round 3: rank 0 on node0 found pid 101 of round 2 alive"},
		},
		{
			name: "a restart was charged", lines: change(second, func(l *line) { l.Restart = 1 }),
			want: []string{"1 restarts, want 0"},
		},
		{
			name: "the restart count differs", lines: change(func(l line) bool { return l.Round == 2 && l.Rank == 0 && l.Step == 19 }, func(l *line) { l.Restart = 1 }),
			want: []string{"round 2: rank 0 has world size 3 and restart count 1, rank 0 has 3 and 0"},
		},
		{
			name: "the restart count falls", lines: change(func(l line) bool { return l.Round == 1 }, func(l *line) { l.Restart = 1 }),
			want: []string{"round 2: restart count 0 after 1", "1 restarts, want 0"},
		},
		{
			name: "two in one place", lines: append(history(4, 3), line{Event: "start", Time: 18, Round: 2, World: 3, Rank: 1, Group: 1, Host: "node3", PID: 9}),
			want: []string{"round 2: rank 1 is on node1 and on node3", "round 2: node rank 1 is on node1 and on node3"},
		},
		{
			name: "a rank out of range", lines: append(history(4, 3), line{Event: "start", Time: 18, Round: 2, World: 3, Rank: 3, Group: 3, Host: "node3", PID: 9}),
			want: []string{"round 2: 4 workers, want 3", "round 2: rank 3 of 3"},
		},
		{
			name: "one worker too few", lines: without(func(l line) bool { return l.Round == 2 && l.Rank == 2 }),
			want: []string{"round 2: 2 workers, want 3"},
		},
		{
			name:  "the node was not missed",
			lines: history(4),
			want:  []string{"world sizes [4], want [4 3]", "the last step is 10, want 19"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := check(tt.lines, expected{worlds: []int{4, 3}, losses: losses, steps: 19})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("complaints (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadRecord(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "log"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"1.node0.0.jsonl": `{"event": "step", "time": 2.5, "round": 1, "step": 3, "loss": 0.25}` + "\n" + `{"event": "st`,
		"1.node1.0.jsonl": `{"event": "start", "time": 1.5, "round": 1, "rank": 1, "host": "node1"}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, "log", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readRecord(dir)
	want := []line{
		{Event: "start", Time: 1.5, Round: 1, Rank: 1, Host: "node1"},
		{Event: "step", Time: 2.5, Round: 1, Step: 3, Loss: 0.25},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v; lines (-want +got):\n%s", err, diff)
	}
}
