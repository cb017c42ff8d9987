package scenario

import (
	"slices"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestNoRoomForFiles runs agents on hosts whose folder in memory takes no files, or no bytes. The agents cannot record
// that they keep the job's store. Each warns once at most. The job goes on, and survives the loss of its first node.
func TestNoRoomForFiles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, mount, warning string }{
		{
			"no bytes", "mount -t tmpfs -o size=4k tmpfs /dev/shm; head -c 9999 /dev/zero >/dev/shm/full || :",
			"cannot record which nodes keep the job's store",
		},
		{
			// One inode for the folder, one for the user's folder in it, and one for that of the heartbeat files.
			"no files", "mount -t tmpfs -o nr_inodes=3 tmpfs /dev/shm",
			"cannot find out whether this run had an earlier store on this machine",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := newTogether(t, "2:4")
			for _, h := range j.nodes() {
				j.startCommand(h, slices.Concat([]string{"/bin/sh", "-euc", tt.mount + `; exec "$@"`, "sh", testenv.Binary(t)},
					j.flags, j.worker)...)
				if len(j.agents) == 1 {
					j.agents[0].await("hosting the rendezvous")
				}
			}
			first := j.awaitRound(-1, 4)
			founder := j.agents[0]
			founder.await(tt.warning)
			for _, a := range j.agents {
				a.await(survivesLoss)
			}
			code := departures[0].leave(j, founder)
			j.awaitRound(first.number, 3)
			j.finish()
			j.end(0, map[*program]int{founder: code}, expected{worlds: []int{4, 3}})
			for _, a := range j.agents {
				files := 0
				for l := range strings.Lines(a.text()) {
					if strings.Contains(l, "WRN") && strings.Contains(l, "cannot") {
						files++
					}
				}
				if want := map[bool]int{true: 1}[a == founder]; files != want {
					t.Errorf("%s warns %d times, want %d", a.name, files, want)
				}
			}
		})
	}
}
