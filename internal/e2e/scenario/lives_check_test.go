package scenario

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// soundLives returns the lives of a job of two worlds of the given sizes, with one worker on each host, and a
// grandchild in the second world. The worlds lie 0.1 s apart.
func soundLives(worlds ...int) []life {
	var lives []life
	for i, size := range worlds {
		begin := float64(10 * (i + 1))
		for rank := range size {
			l := life{
				Job: "job", Round: i, World: size, Rank: rank, Group: rank, Host: fmt.Sprintf("node%d", rank),
				PID: 100*i + rank, Addr: "10.75.0.1", Port: 4000 + i, Kind: "worker",
				first: begin + 0.01*float64(rank), last: begin + 9.9,
			}
			lives = append(lives, l)
			if rank == 1 {
				l.Kind, l.PID = "detached", l.PID+50
				lives = append(lives, l)
			}
		}
	}
	return lives
}

func TestCheckLives(t *testing.T) {
	// change returns sound lives, with the picked ones changed.
	change := func(pick func(l life) bool, to func(l *life)) []life {
		lives := soundLives(3, 2)
		for i := range lives {
			if pick(lives[i]) {
				to(&lives[i])
			}
		}
		return lives
	}
	worker := func(round, rank int) func(l life) bool {
		return func(l life) bool { return l.Round == round && l.Rank == rank && l.Kind == "worker" }
	}
	grandchild := func(l life) bool { return l.Kind == "detached" && l.Round == 0 }
	second := func(l life) bool { return l.Round == 1 }
	// observed adds a life that only the observer saw, of the first world's rank 2.
	observed := func(pid int, first, last float64) []life {
		return merge(soundLives(3, 2), []life{{
			Job: "job", Round: 0, World: 3, Rank: 2, Group: 2, Host: "node2", PID: pid, Port: 4000, Kind: "seen",
			first: first, last: last,
		}})
	}
	const both = "round 0 at port 4000 and round 1 at port 4001 overlap: "
	tests := []struct {
		name  string
		lives []life
		want  []string // beginning of each line
	}{
		{name: "sound", lives: soundLives(3, 2)},
		{name: "nothing", lives: nil},
		{name: "a worker never began", lives: slices.DeleteFunc(soundLives(3, 2), worker(1, 0))},
		{
			name: "a worker outlives its round", lives: change(worker(0, 2), func(l *life) { l.last = 20.5 }),
			want: []string{both + "0.500 s: worker of rank 2 of 3 on node2, pid 2, from 10.020 to 20.500; " +
				"worker of rank 0 of 2 on node0, pid 100, from 20.000"},
		},
		{
			name: "it does so by a moment", lives: change(worker(0, 2), func(l *life) { l.last = 20.005 }),
			want: []string{both + "0.005 s: "},
		},
		{
			name: "a grandchild does", lives: change(grandchild, func(l *life) { l.last = 25 }),
			want: []string{both + "5.000 s: detached of rank 1 of 3 on node1, pid 51, "},
		},
		{
			name: "it is silent in between", lives: change(worker(0, 0), func(l *life) { l.last = 60 }),
			want: []string{both + "9.900 s: "},
		},
		{
			name: "only the observer has seen it", lives: observed(77, 19, 21),
			want: []string{both + "1.000 s: seen of rank 2 of 3 on node2, pid 77, "},
		},
		{
			name: "the observer has seen it longer", lives: observed(2, 19, 21),
			want: []string{both + "1.000 s: worker of rank 2 of 3 on node2, pid 2, "},
		},
		{
			name: "the observer has seen it once", lives: observed(77, 20.002, 20),
		},
		{
			name: "two first rounds of two stores", lives: change(second, func(l *life) { l.Round, l.first = 0, 19 }),
			want: []string{"round 0 at port 4000 and round 0 at port 4001 overlap: 0.900 s: "},
		},
		{name: "two first rounds one after the other", lives: change(second, func(l *life) { l.Round = 0 })},
		{
			name: "world sizes differ", lives: change(worker(1, 1), func(l *life) { l.World = 3 }),
			want: []string{"round 1 at port 4001: rank 1 has world size 3 and restart count 0, rank 0 has 2 and 0"},
		},
		{
			name: "restart counts differ", lives: change(worker(1, 1), func(l *life) { l.Restart = 1 }),
			want: []string{"round 1 at port 4001: rank 1 has world size 2 and restart count 1, rank 0 has 2 and 0"},
		},
		{
			name: "a rank twice", lives: change(worker(0, 2), func(l *life) { l.Rank = 0 }),
			want: []string{"round 0 at port 4000: two workers have rank 0: "},
		},
		{
			name: "a rank out of range", lives: change(worker(0, 2), func(l *life) { l.Rank = 3 }),
			want: []string{"round 0 at port 4000: rank 3 of 3"},
		},
		{
			name: "a place twice", lives: change(worker(0, 2), func(l *life) { l.Group, l.Host = 0, "node0" }),
			want: []string{"round 0 at port 4000: two workers are local rank 0 of node rank 0: "},
		},
		{
			name: "a node rank on two hosts", lives: change(worker(0, 2), func(l *life) { l.Group, l.Local = 0, 1 }),
			want: []string{"round 0 at port 4000: node rank 0 is on node0 and on node2"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := checkLives(tt.lives)
			for i := range min(len(got), len(tt.want)) {
				if strings.HasPrefix(got[i], tt.want[i]) {
					got[i] = tt.want[i]
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("complaints (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadLives(t *testing.T) {
	const place = `{"round": 3, "restart": 1, "world": 4, "rank": 2, "local": 0, "group": 1, "port": 4000, ` +
		`"kind": "child", "addr": "a", "host": "node1", "pid": 9, "job": "job"}`
	whole := life{
		Job: "job", Round: 3, Restart: 1, World: 4, Rank: 2, Group: 1, Port: 4000, Kind: "child", Addr: "a", Host: "node1",
		PID: 9, first: 7.25, last: 8.5,
	}
	tests := []struct {
		name, text string
		want       life
		ok         bool
	}{
		{name: "whole", text: place + "\n7.250000\n7.500000\n8.500000\n", want: whole, ok: true},
		{name: "killed in a line", text: place + "\n7.250000\n8.500000\n9.5", want: whole, ok: true},
		{name: "no proof", text: place + "\n"},
		{name: "killed in the first line", text: place[:20]},
		{name: "empty"},
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lives"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, tt := range tests {
		got, ok := readLife(bufio.NewScanner(strings.NewReader(tt.text)))
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("%s: %+v, %v", tt.name, got, ok)
		}
		name := filepath.Join(dir, "lives", fmt.Sprintf("%d.jsonl", i))
		if err := os.WriteFile(name, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := readLives(dir); err != nil || len(got) != 2 {
		t.Errorf("%d lives, %v; want 2", len(got), err)
	}
}
