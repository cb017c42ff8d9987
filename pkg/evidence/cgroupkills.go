package evidence

import (
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/cgroup"
)

// maxGroups is the most cgroups below this process's own that are read.
const maxGroups = 256

// groupKills is what is known about a cgroup below this process's own. A worker may have made it for a part of its
// work.
type groupKills struct {
	Kills int64
	Limit int64 // its own, in bytes; 0 for none
}

// killsBelow returns the cgroups below dir in which the OOM killer has killed processes, and whether dir has any below.
// The counts in the events file of a cgroup exclude the cgroups below it.
func killsBelow(root fs.FS, dir, events, limit string) (found map[string]groupKills, some bool) {
	found = map[string]groupKills{}
	read := 0
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := fs.ReadDir(root, strings.TrimPrefix(dir, "/"))
		if err != nil {
			return
		}
		for _, e := range entries {
			if !e.IsDir() || read == maxGroups {
				continue
			}
			read++
			group := path.Join(dir, e.Name())
			if kills := counter(cgroup.Read(root, group, events), "oom_kill"); kills > 0 {
				found[group] = groupKills{Kills: kills, Limit: limitOf(root, group, limit)}
			}
			walk(group)
		}
	}
	walk(dir)
	if len(found) == 0 {
		found = nil
	}
	return found, read > 0
}

// limitOf returns a cgroup's own limit in bytes; 0 for none.
func limitOf(root fs.FS, group, file string) int64 {
	n, err := strconv.ParseInt(cgroup.Read(root, group, file), 10, 64) // "max" means no limit
	if err != nil || n >= 1<<60 {                                      // in version 1 a huge number means no limit
		return 0
	}
	return n
}

// since returns how many processes the OOM killer has killed since before, which was read from the same cgroup. where
// is the cgroup that lost most of them, with its tightest limit. Kills in a cgroup that is gone are not counted.
func (m Memory) since(before Memory) (kills int64, where Memory) {
	own := m.Kills - before.Kills
	kills, where = max(0, own), m
	most := kills
	for group, k := range m.Below {
		n := k.Kills - before.Below[group].Kills
		if n <= 0 {
			continue
		}
		kills += n
		if n < most || n == most && group > where.Path {
			continue
		}
		most, where.Path = n, group
		if k.Limit > 0 && (m.Limit == 0 || k.Limit < m.Limit) {
			where.Limit, where.Owner = k.Limit, group
		} else {
			where.Limit, where.Owner = m.Limit, m.Owner
		}
	}
	return kills, where
}
