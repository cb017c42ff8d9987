package rounds

import (
	"fmt"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// Authority implements [coord.Authority] for the clients of a run's store. A client may write keys that end with its
// session, and read keys of its run. The leader is not a client: it runs in the store's process.
type Authority struct{}

// MayCommit implements [coord.Authority].
func (Authority) MayCommit(c coord.Claim, guards []coord.Guard, ops []coord.Op) error {
	prefix := PrefixOf(c.RunID)
	for _, g := range guards { // a guard shows whether a key exists, so it reads
		if c.RunID == "" || !strings.HasPrefix(g.Key, prefix) {
			return fmt.Errorf("%w: session %s of run %q may not read key %q", coord.ErrDenied, c.Session, c.RunID, g.Key)
		}
	}
	for _, op := range ops {
		key, ours := strings.CutPrefix(op.Key, prefix)
		if c.RunID == "" || !ours || !mayWrite(c, key, guards, op) {
			return fmt.Errorf("%w: session %s of run %q may not write key %q", coord.ErrDenied, c.Session, c.RunID, op.Key)
		}
	}
	return nil
}

// mayWrite reports whether the session may write a key of its run.
func mayWrite(c coord.Claim, key string, guards []coord.Guard, op coord.Op) bool {
	folder, session, _ := strings.Cut(key, "/")
	own := session == string(c.Session) && (op.Owned || op.Delete)
	switch c.Role {
	case coord.RoleAgent:
		return own && slices.Contains([]string{PrefixAgent, PrefixStatus, PrefixStacks, PrefixWatcher}, folder+"/")
	case coord.RoleObserver:
		return own && folder+"/" == PrefixWatcher
	case coord.RoleCloser:
		if key == KeyClose { // ends the run that the guards name, if that run has no result
			noResult := coord.Guard{Key: PrefixOf(c.RunID) + KeyResult}
			return !op.Delete && op.TTL == CloseRequestTTL && slices.Contains(guards, noResult)
		}
		return key == PrefixClose+string(c.Session) && (op.Owned || op.Delete)
	}
	return false
}

// MayWatch implements [coord.Authority].
func (Authority) MayWatch(c coord.Claim, prefix string) error {
	if c.RunID != "" && strings.HasPrefix(prefix, PrefixOf(c.RunID)) {
		return nil
	}
	return fmt.Errorf("%w: session %s of run %q may not watch %q", coord.ErrDenied, c.Session, c.RunID, prefix)
}
