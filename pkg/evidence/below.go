package evidence

import (
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/cgroup"
)

// maxGroups bounds how many cgroups below this process' own are looked at.
const maxGroups = 256

// groupKills is what is known of a cgroup below this process' own, as one that a worker has made for a part of its work.
type groupKills struct {
	Kills int64
	Limit int64 // its own, in bytes; 0 for none
}

// killsBelow reads the cgroups below dir of which the OOM killer has taken processes. The file of counts there tells of a cgroup's own alone.
func killsBelow(root fs.FS, dir, events, limit string) map[string]groupKills {
	found := map[string]groupKills{}
	looked := 0
	var look func(dir string)
	look = func(dir string) {
		entries, err := fs.ReadDir(root, strings.TrimPrefix(dir, "/"))
		if err != nil {
			return
		}
		for _, e := range entries {
			if !e.IsDir() || looked == maxGroups {
				continue
			}
			looked++
			group := path.Join(dir, e.Name())
			if kills := counter(cgroup.Read(root, group, events), "oom_kill"); kills > 0 {
				found[group] = groupKills{Kills: kills, Limit: limitOf(root, group, limit)}
			}
			look(group)
		}
	}
	look(dir)
	if len(found) == 0 {
		return nil
	}
	return found
}

// limitOf reads a cgroup's own limit in bytes; 0 for none.
func limitOf(root fs.FS, group, file string) int64 {
	n, err := strconv.ParseInt(cgroup.Read(root, group, file), 10, 64) // "max" is none
	if err != nil || n >= 1<<60 {                                      // version 1 has a huge number for none
		return 0
	}
	return n
}

// since tells how many processes an OOM killer has taken since before, which was read of the same cgroup: moved in all, of which where is the cgroup
// that has lost most, and its limit is tightest. A cgroup that has gone meanwhile tells nothing.
func (m Memory) since(before Memory) (moved int64, where Memory) {
	own := m.Kills - before.Kills
	moved, where = max(0, own), m
	most := moved
	for group, k := range m.Below {
		n := k.Kills - before.Below[group].Kills
		if n <= 0 {
			continue
		}
		moved += n
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
	return moved, where
}
