package scenario

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// life is what is proven about one process of a worker: it was alive from first to last, and had this rank in this
// world.
type life struct {
	Job     string `json:"job"`
	Round   int    `json:"round"`
	Restart int    `json:"restart"`
	World   int    `json:"world"` // number of workers
	Rank    int    `json:"rank"`
	Local   int    `json:"local"`
	Group   int    `json:"group"`
	Addr    string `json:"addr"` // address of the worker store
	Port    int    `json:"port"`
	Kind    string `json:"kind"` // worker, child, detached, or seen if only the observer has seen it
	Host    string `json:"host"`
	PID     int    `json:"pid"`

	first, last float64 // seconds of the clock that all hosts share
}

func (l life) String() string {
	return fmt.Sprintf("%s of rank %d of %d on %s, pid %d, from %.3f to %.3f",
		l.Kind, l.Rank, l.World, l.Host, l.PID, l.first, l.last)
}

// world is a set of workers that train together. Round numbers begin again with a new store, but every world has its
// own worker store, and so its own port.
type world struct {
	job         string
	round, port int
}

func (w world) String() string { return fmt.Sprintf("round %d at port %d", w.round, w.port) }

func (l life) world() world { return world{l.Job, l.Round, l.Port} }

// readLives returns what witness.py has recorded so far, sorted by the first proof. A killed worker can leave a
// partial line.
func readLives(dir string) ([]life, error) {
	files, err := filepath.Glob(filepath.Join(dir, "lives", "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var lives []life
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		if l, ok := readLife(bufio.NewScanner(f)); ok {
			lives = append(lives, l)
		}
		_ = f.Close()
	}
	slices.SortStableFunc(lives, func(a, b life) int { return cmp.Compare(a.first, b.first) })
	return lives, nil
}

// readLife reads the file of one process. It returns false if nothing proves that the process was alive.
func readLife(in *bufio.Scanner) (l life, ok bool) {
	if !in.Scan() || json.Unmarshal(in.Bytes(), &l) != nil {
		return l, false
	}
	for in.Scan() {
		at, err := strconv.ParseFloat(in.Text(), 64)
		if _, decimals, _ := strings.Cut(in.Text(), "."); err != nil || len(decimals) != 6 {
			break // partial line
		}
		if l.first == 0 {
			l.first = at
		}
		l.last = at
	}
	return l, l.first > 0
}

// merge adds the observer's lives to those that the processes have recorded.
func merge(written, seen []life) []life {
	all := slices.Clone(written)
	for _, s := range seen {
		i := slices.IndexFunc(all, func(l life) bool {
			return l.PID == s.PID && l.world() == s.world() && l.Rank == s.Rank
		})
		if i < 0 {
			all = append(all, s)
			continue
		}
		all[i].first, all[i].last = min(all[i].first, s.first), max(all[i].last, s.last)
	}
	slices.SortStableFunc(all, func(a, b life) int { return cmp.Compare(a.first, b.first) })
	return all
}

// checkLives returns one line for each violation in the lives of all workers of one job, however the job was
// disturbed. Processes of two worlds must never be alive at once, and the places within a world must be consistent.
func checkLives(lives []life) []string {
	byWorld := map[world][]life{}
	for _, l := range lives {
		byWorld[l.world()] = append(byWorld[l.world()], l)
	}
	worlds := slices.SortedFunc(maps.Keys(byWorld), func(a, b world) int {
		return cmp.Compare(byWorld[a][0].first, byWorld[b][0].first)
	})
	var bad []string
	for i, w := range worlds {
		for _, other := range worlds[i+1:] {
			if line := overlap(byWorld[w], byWorld[other]); line != "" {
				bad = append(bad, fmt.Sprintf("%s and %s overlap: %s", w, other, line))
			}
		}
		for _, line := range checkWorld(byWorld[w]) {
			bad = append(bad, fmt.Sprintf("%s: %s", w, line))
		}
	}
	return bad
}

// overlap describes the longest time during which two processes of different worlds were alive, or returns "".
func overlap(a, b []life) string {
	longest, line := 0.0, ""
	for _, x := range a {
		for _, y := range b {
			if both := min(x.last, y.last) - max(x.first, y.first); both >= 0 && (both > longest || line == "") {
				longest, line = both, fmt.Sprintf("%.3f s: %s; %s", both, x, y)
			}
		}
	}
	return line
}

// checkWorld returns the violations within a world.
func checkWorld(lives []life) []string {
	var bad []string
	complain := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	ranks, groups, places := map[int]life{}, map[int]life{}, map[string]life{}
	for _, l := range lives {
		if one := lives[0]; l.World != one.World || l.Restart != one.Restart {
			complain("rank %d has world size %d and restart count %d, rank %d has %d and %d",
				l.Rank, l.World, l.Restart, one.Rank, one.World, one.Restart)
		}
		if l.Rank < 0 || l.Rank >= l.World {
			complain("rank %d of %d", l.Rank, l.World)
		}
		if other, ok := groups[l.Group]; ok && other.Host != l.Host {
			complain("node rank %d is on %s and on %s", l.Group, other.Host, l.Host)
		}
		groups[l.Group] = l
		if l.Kind != "worker" {
			continue
		}
		if other, ok := ranks[l.Rank]; ok {
			complain("two workers have rank %d: %s; %s", l.Rank, other, l)
		}
		ranks[l.Rank] = l
		place := fmt.Sprintf("local rank %d of node rank %d", l.Local, l.Group)
		if other, ok := places[place]; ok {
			complain("two workers are %s: %s; %s", place, other, l)
		}
		places[place] = l
	}
	return bad
}

// liveWorlds summarizes lives for the reader of a failed test.
func liveWorlds(lives []life) []string {
	byWorld := map[world][]life{}
	var order []world
	for _, l := range lives {
		if byWorld[l.world()] == nil {
			order = append(order, l.world())
		}
		byWorld[l.world()] = append(byWorld[l.world()], l)
	}
	var lines []string
	for _, w := range order {
		last := 0.0
		var ranks []string
		for _, l := range byWorld[w] {
			last = max(last, l.last)
			ranks = append(ranks, fmt.Sprintf("%s:%d(%s)", l.Host, l.Rank, l.Kind[:1]))
		}
		one := byWorld[w][0]
		lines = append(lines, fmt.Sprintf("%s from %.3f to %.3f: world size %d, restart %d, processes %s",
			w, one.first, last, one.World, one.Restart, strings.Join(ranks, " ")))
	}
	return lines
}
