package rounds

import (
	"errors"
	"testing"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// TestAuthority checks which keys a session may write and watch: its own ones, of its own run, for its own role.
func TestAuthority(t *testing.T) {
	agent := coord.Claim{Role: coord.RoleAgent, RunID: "job7", Session: "S1"}
	observer := coord.Claim{Role: coord.RoleObserver, RunID: "job7", Session: "S1"}
	closer := coord.Claim{Role: coord.RoleCloser, RunID: "job7", Session: "S1"}
	nobody := coord.Claim{Session: "S1"}
	noResult := []coord.Guard{{Key: "job7/state/job/0", Create: 3}, {Key: "job7/state/result"}}
	owned := func(key string) coord.Op { return coord.Op{Key: key, Owned: true} }
	request := coord.Op{Key: "job7/state/close", TTL: CloseRequestTTL}
	for _, tt := range []struct {
		name   string
		claim  coord.Claim
		guards []coord.Guard
		op     coord.Op
		ok     bool
	}{
		{"an agent's report", agent, nil, owned("job7/agent/S1"), true},
		{"an agent's status", agent, nil, owned("job7/status/S1"), true},
		{"its status goes", agent, nil, coord.Op{Key: "job7/status/S1", Delete: true}, true},
		{"it asks the other agents", agent, nil, owned("job7/watcher/S1"), true},
		{"it asks for another agent", agent, nil, owned("job7/watcher/S2"), false},
		{"a key that outlives it", agent, nil, coord.Op{Key: "job7/agent/S1"}, false},
		{"another agent's report", agent, nil, owned("job7/agent/S2"), false},
		{"another agent goes", agent, nil, coord.Op{Key: "job7/agent/S2", Delete: true}, false},
		{"another run", agent, nil, owned("job8/agent/S1"), false},
		{"a run with the same beginning", agent, nil, owned("job70/agent/S1"), false},
		{"a key below its own", agent, nil, owned("job7/agent/S1/x"), false},
		{"the leader's key", agent, nil, owned("job7/leader"), false},
		{"a round", agent, nil, coord.Op{Key: "job7/state/round/1"}, false},
		{"an answer", agent, nil, coord.Op{Key: "job7/answer/S1"}, false},
		{"the result", agent, nil, coord.Op{Key: "job7/state/result"}, false},
		{"a guard of another run", agent, []coord.Guard{{Key: "job8/leader"}}, owned("job7/agent/S1"), false},
		{"an agent closes by its report", agent, noResult, request, false},
		{"an observer's key", observer, nil, owned("job7/watcher/S1"), true},
		{"an observer that reports", observer, nil, owned("job7/agent/S1"), false},
		{"an observer that closes", observer, noResult, request, false},
		{"a request to close", closer, noResult, request, true},
		{"its own part", closer, noResult, owned("job7/state/close/S1"), true},
		{"another's part", closer, noResult, owned("job7/state/close/S2"), false},
		{"a request without guards", closer, nil, request, false},
		{"a request for ever", closer, noResult, coord.Op{Key: "job7/state/close"}, false},
		{"a request that goes", closer, noResult, coord.Op{Key: "job7/state/close", Delete: true}, false},
		{"no run", nobody, nil, owned("/agent/S1"), false},
	} {
		err := Authority{}.MayCommit(tt.claim, tt.guards, []coord.Op{tt.op})
		if ok := err == nil; ok != tt.ok || !ok && !errors.Is(err, coord.ErrDenied) {
			t.Errorf("%s: %v, want allowed: %v", tt.name, err, tt.ok)
		}
	}
	for prefix, ok := range map[string]bool{
		"job7/": true, "job7/answer/S1": true, "job7": false, "": false, "job8/": false, "job70/": false,
	} {
		if got := (Authority{}).MayWatch(agent, prefix) == nil; got != ok {
			t.Errorf("watch %q: %v, want %v", prefix, got, ok)
		}
	}
	if (Authority{}).MayWatch(nobody, "/") == nil {
		t.Error("a client without a run may watch")
	}
}
