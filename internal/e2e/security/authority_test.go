package security

import (
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestOthersKeys has peers with the secret and a session of each role in a running job. They write everything that is
// not theirs, read other runs, and use each other's tokens. The store refuses all of it, and the job succeeds.
func TestOthersKeys(t *testing.T) {
	t.Parallel()
	secret, secretFile := newSecret(t)
	_, addr := startStore(t, secretFile)
	file := t.TempDir() + "/go"
	script := "echo worker began; " + until(file)
	job := []*program{
		startAgent(t, "agent 0", addr, secretFile, script), startAgent(t, "agent 1", addr, secretFile, script),
	}
	for _, a := range job {
		a.await("worker began")
	}
	other := enter(t, addr, secret, roleAgent, "other") // a session of another run, with a key
	if code, err := other.commit(nil, op{flagOwned, "other/agent/" + other.id, "private"}); code != codeDone || err != nil {
		t.Fatalf("the store answers a commit of the session's own key with %d, %v", code, err)
	}
	before := keys(t, addr, secret, run)
	var foreign []string // keys of the run that exist, and keys that the leader would write later
	for key := range before {
		foreign = append(foreign, key)
	}
	if len(foreign) < 5 {
		t.Fatalf("the run has only these keys: %q", foreign)
	}
	for _, key := range []string{
		"leader", "state/job/1", "state/job/9", "state/round/9", "state/result", "state/finished", "state/past",
		"state/waiting", "state/departed/1/0", "state/succeeded/1/0", "state/close/another", "agent/another",
		"answer/another", "watcher/another", "status/another", "anything", "",
	} {
		foreign = append(foreign, run+"/"+key)
	}
	foreign = append(foreign, "other/agent/"+other.id, "other/state/close", "", run, "/", run+"2/agent/x")

	own := map[byte][]string{
		roleAgent: {"agent/", "status/", "watcher/"}, roleObserver: {"watcher/"}, roleCloser: {"state/close/"},
	}
	for role, name := range map[byte]string{roleAgent: "agent", roleObserver: "observer", roleCloser: "closer"} {
		p := enter(t, addr, secret, role, run)
		tryWrite := func(want byte, guards []string, ops ...op) {
			t.Helper()
			if code, err := p.commit(guards, ops...); code != want || err != nil {
				t.Errorf("%s writes %q with guards %q: code %d, %v, want %d", name, ops, guards, code, err, want)
			}
		}
		mine := run + "/" + own[role][0] + p.id
		for _, key := range foreign {
			for _, flags := range []byte{0, flagOwned, flagDelete} {
				tryWrite(codeDenied, nil, op{flags, key, "forged"})
			}
			tryWrite(codeDenied, nil, op{flagOwned, mine, "v"}, op{flagOwned, key, "forged"}) // all or nothing
		}
		for _, folder := range []string{"agent/", "status/", "watcher/", "answer/", "state/close/", "state/job/", ""} {
			key := run + "/" + folder + p.id
			if !slices.Contains(own[role], folder) {
				tryWrite(codeDenied, nil, op{flagOwned, key, "forged"})
				tryWrite(codeDenied, nil, op{flagDelete, key, ""})
			}
		}
		tryWrite(codeDenied, nil, op{0, mine, "outlives its session"})
		tryWrite(codeDenied, nil, op{0, run + "/state/close", "1"}) // without the guard and the lifetime of a closer
		for _, key := range []string{"other/agent/" + other.id, "other/absent", run, ""} {
			tryWrite(codeDenied, []string{key}, op{flagOwned, mine, "v"}) // a guard shows whether a key exists
		}
		if _, exists := keys(t, addr, secret, run)[mine]; exists {
			t.Errorf("%s: a refused commit has written its other key", name)
		}
		if role != roleAgent { // the job would wait for the node
			tryWrite(codeDone, nil, op{flagOwned, mine, "v"})
			tryWrite(codeDone, nil, op{flagDelete, mine, ""})
		}
		if f, err := p.watch(run + "/"); err != nil || f.kind != kindBatch {
			t.Errorf("%s watches its run: %d %q, %v", name, f.kind, f.body, err)
		}
		for _, prefix := range []string{"", "o", "other/", "/", run, run[:5], run + "2/"} {
			q := enter(t, addr, secret, role, run)
			if f, err := q.watch(prefix); err == nil {
				t.Errorf("%s watches %q: %d %q", name, prefix, f.kind, f.body)
			}
		}
		_ = p.Close()
	}
	after := keys(t, addr, secret, run)
	maps.DeleteFunc(after, func(key, value string) bool { // agents show their status while the observer's key exists
		return before[key] == "" && strings.HasPrefix(key, run+"/status/") && strings.HasPrefix(value, `{"schema":`)
	})
	if !maps.Equal(before, after) {
		t.Errorf("keys before %q\nafter %q", before, after)
	}
	create(t, file)
	for _, a := range job {
		if code := a.code(); code != 0 {
			t.Errorf("%s ended with %d", a.name, code)
		}
		if n := strings.Count(a.text(), "worker began"); n != 1 {
			t.Errorf("%s has started its worker %d times", a.name, n)
		}
	}
}

// TestTokens has peers that know the token of another session. The token is worth nothing without the secret, in
// another role or in another run.
func TestTokens(t *testing.T) {
	t.Parallel()
	secret, secretFile := newSecret(t)
	wrong, _ := newSecret(t)
	_, addr := startStore(t, secretFile)
	owner := enter(t, addr, secret, roleAgent, run)
	key := run + "/agent/" + owner.id
	if code, err := owner.commit(nil, op{flagOwned, key, "value"}); code != codeDone || err != nil {
		t.Fatalf("the store answers a commit with %d, %v", code, err)
	}
	for _, tc := range []struct {
		name, secret, run, token string
		role, reason             byte
	}{
		{name: "wrong secret", secret: wrong, run: run, token: owner.token, reason: reasonSecret},
		{name: "no secret", run: run, token: owner.token, reason: reasonSecret},
		{name: "observer", secret: secret, run: run, token: owner.token, role: roleObserver, reason: reasonGone},
		{name: "closer", secret: secret, run: run, token: owner.token, role: roleCloser, reason: reasonGone},
		{name: "another run", secret: secret, run: "other", token: owner.token, reason: reasonGone},
		{name: "no run", secret: secret, token: owner.token, reason: reasonGone},
		{name: "the session's id alone", secret: secret, run: run, token: owner.id, reason: reasonGone},
		{name: "the id and a guess", secret: secret, run: run, token: owner.id + ".guess", reason: reasonGone},
	} {
		for _, end := range []bool{false, true} {
			if f := tryResume(t, addr, tc.secret, tc.role, tc.run, tc.token, end); !refusedFor(f, tc.reason) {
				t.Errorf("%s, end %t: the store answers %d %q", tc.name, end, f.kind, f.body)
			}
		}
	}
	if got := keys(t, addr, secret, run); got[key] != "value" {
		t.Errorf("keys %q: the session has ended", got)
	}
	// The owner still has its connection: nobody took the session over.
	if code, err := owner.commit(nil, op{flagOwned, key, "again"}); code != codeDone || err != nil {
		t.Errorf("the store answers the owner with %d, %v", code, err)
	}
	if f := tryResume(t, addr, secret, roleAgent, run, owner.token, true); f.kind != kindWelcome {
		t.Errorf("the token and the secret together end the session: %d %q", f.kind, f.body)
	}
	if _, err := io.ReadAll(owner); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the ended session keeps its connection: %v", err)
	}
}
