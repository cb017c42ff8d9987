package coordtest

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

func sessionIDs(l *testEnv) {
	seen := make(map[coord.SessionID]bool)
	for i := range 6 {
		s := l.open()
		id := s.Session()
		if id == "" || seen[id] {
			l.Fatalf("session %d has the id %q, which is empty or was there before", i, id)
		}
		seen[id] = true
		if l.TTL > 0 && s.TTL() != l.TTL {
			l.Errorf("TTL returned %v, the harness says %v", s.TTL(), l.TTL)
		}
		l.commit(s, nil, l.putOwned("k", "v"))
		if again := s.Session(); again != id {
			l.Errorf("the session's id changed from %q to %q", id, again)
		}
		l.alive(s)
		if i%2 == 0 {
			l.close(s)
		}
	}
}

// closeEndsSession checks that all keys of a closed session vanish at once, together, and that it is of no more use.
func closeEndsSession(l *testEnv) {
	a, b := l.open(), l.open()
	l.commit(a, nil, l.putOwned("own 1", "v"), l.put("plain", "v"))
	l.commit(a, nil, l.putOwned("own 2", "v"), l.putOwned("own 3", "v"))
	l.commit(a, nil, l.putOwned("deleted before", "v"))
	l.commit(a, nil, l.del("deleted before"))
	l.commit(b, nil, l.putOwned("of another", "v"))
	seen, own := l.watch(b, ""), l.watch(a, "")
	all := map[string]string{"own 1": "v", "own 2": "v", "own 3": "v", "plain": "v", "of another": "v"}
	seen.awaitAll(all)
	own.awaitAll(all)
	before := seen.count()

	l.close(a)
	left := map[string]string{"plain": "v", "of another": "v"}
	l.holds(b, left) // before the watch, which may be behind
	seen.awaitAll(left)
	if got := seen.batchStrings()[before:]; len(got) != 1 {
		l.Errorf("the end of a session was told as %q, want one batch", got)
	}
	if err := own.ended(); !errors.Is(err, coord.ErrSessionLost) {
		l.Errorf("a watch of the closed session returned %v, want %v", err, coord.ErrSessionLost)
	}
	l.allCallsLost(a)
	l.holds(b, left)
	ctx, cancel := l.bounded()
	defer cancel()
	_ = a.Close(ctx) // does not hang, does no harm
	l.alive(b)
}

// owners checks that a key is its latest writer's.
func owners(l *testEnv) {
	a, b, other := l.open(), l.open(), l.open()
	l.commit(a, nil, l.putOwned("taken over", "a"), l.putOwned("freed", "a"), l.put("bound", "nobody's"))
	l.commit(b, nil, l.putOwned("taken over", "b"), l.put("freed", "nobody's"))
	l.commit(a, nil, l.putOwned("bound", "a"))
	l.close(a)
	l.holds(other, map[string]string{"taken over": "b", "freed": "nobody's"})
	l.close(b)
	l.holds(other, map[string]string{"freed": "nobody's"})
}

func keepAlive(l *testEnv) {
	a, b := l.open(), l.open()
	v := l.watch(b, "")
	l.commit(a, nil, l.putOwned("k", "v"))
	v.awaitAll(map[string]string{"k": "v"})
	n := v.count()
	select { // a promise about time
	case <-time.After(4 * l.TTL):
	case <-a.Lost():
	}
	l.alive(a)
	l.commit(b, nil, l.put("marker", ""))
	v.awaitAll(map[string]string{"k": "v", "marker": ""})
	if got := v.batchStrings()[n:]; len(got) != 1 {
		l.Errorf("a session that was kept alive was told of as %q", got)
	}
}

// expiry ends a session that is silent: not before its time, and then all its keys together.
func expiry(l *testEnv) {
	a, b := l.openIdle(), l.open()
	seen := l.watch(b, "")
	l.commit(a, nil, l.putOwned("k 1", "v"), l.putOwned("k 2", "v"), l.put("plain", "v"))
	all := map[string]string{"k 1": "v", "k 2": "v", "plain": "v"}
	seen.awaitAll(all)
	n := seen.count()

	ctx, cancel := l.bounded()
	defer cancel()
	start := time.Now()
	if err := a.KeepAlive(ctx); err != nil {
		l.Fatalf("KeepAlive: %v", err)
	}
	seen.awaitAll(map[string]string{"plain": "v"})
	if lived := time.Since(start); lived < l.TTL {
		l.Errorf("the session lived for %v after KeepAlive, want %v", lived, l.TTL)
	}
	if got := seen.batchStrings()[n:]; len(got) != 1 {
		l.Errorf("the end of a session was told as %q, want one batch", got)
	}
	l.commitFails(a, coord.ErrSessionLost, nil, l.put("plain", "no"))
	l.commitFails(a, coord.ErrSessionLost, nil, l.putOwned("k 1", "no"))
	l.allCallsLost(a)
	l.holds(b, map[string]string{"plain": "v"})
}

// expiryAsked asks a session that is lost nothing but to be kept alive, and watches.
func expiryAsked(l *testEnv) {
	a, b := l.openIdle(), l.open()
	own, seen := l.watch(a, ""), l.watch(b, "")
	l.commit(a, nil, l.putOwned("k", "v"))
	seen.awaitAll(map[string]string{"k": "v"})
	seen.awaitAll(map[string]string{})
	ctx, cancel := l.bounded()
	defer cancel()
	if err := a.KeepAlive(ctx); !errors.Is(err, coord.ErrSessionLost) {
		l.Errorf("KeepAlive returned %v, want %v", err, coord.ErrSessionLost)
	}
	l.sessionLost(a)
	if err := own.ended(); !errors.Is(err, coord.ErrSessionLost) {
		l.Errorf("a watch of the lost session returned %v, want %v", err, coord.ErrSessionLost)
	}
}

// keyTTL is a short TTL of keys, in whole seconds, which every store can keep.
func (l *testEnv) keyTTL() time.Duration { return 2 * time.Second }

// keyTTL checks that a key vanishes after its TTL, whatever becomes of its writer.
func keyTTL(l *testEnv) {
	a, b := l.open(), l.open()
	v := l.watch(b, "")
	start := time.Now()
	l.commit(a, nil, l.putTTL("short", "v", l.keyTTL()), l.putTTL("long", "v", time.Hour), l.put("plain", "v"))
	l.close(a)
	v.awaitAll(map[string]string{"short": "v", "long": "v", "plain": "v"})
	v.awaitAll(map[string]string{"long": "v", "plain": "v"})
	if lived := time.Since(start); lived < l.keyTTL()*9/10 {
		l.Errorf("a key with a TTL of %v lived for %v", l.keyTTL(), lived)
	}
	l.commit(b, []coord.Guard{l.guard("short", 0)}, l.put("short", "again"))
}

// keyTTLRenewed checks that each put counts the TTL anew.
func keyTTLRenewed(l *testEnv) {
	s := l.open()
	v := l.watch(s, "")
	made := l.commit(s, nil, l.putTTL("k", "0", l.keyTTL()))
	const puts = 4
	var start time.Time
	for i := range puts {
		select { // a promise about time
		case <-time.After(l.keyTTL() / 2):
		case <-l.Context().Done():
		}
		start = time.Now()
		l.commit(s, []coord.Guard{l.guard("k", made)}, l.putTTL("k", fmt.Sprint(i+1), l.keyTTL()))
	}
	v.awaitAll(map[string]string{"k": fmt.Sprint(puts)})
	v.awaitAll(map[string]string{})
	if lived := time.Since(start); lived < l.keyTTL()*9/10 {
		l.Errorf("a key with a TTL of %v lived for %v after its last put", l.keyTTL(), lived)
	}
	for _, told := range v.batchStrings()[1:] {
		if !strings.Contains(told, fmt.Sprintf("made in %d", made)) && !strings.Contains(told, "k deleted") {
			l.Errorf("a put with a TTL changed the create-revision %d: %s", made, told)
		}
	}
}

// keyTTLTaken checks that a put without a TTL takes it away, and a session that takes the key over too.
func keyTTLTaken(l *testEnv) {
	a, b := l.open(), l.open()
	v := l.watch(b, "")
	l.commit(a, nil, l.putTTL("freed", "v", l.keyTTL()), l.putTTL("owned", "v", l.keyTTL()), l.putOwned("given", "v"))
	l.commit(a, nil, l.put("freed", "v"), l.putOwned("owned", "v"), l.putTTL("given", "v", time.Hour))
	l.commit(b, nil, l.putTTL("clock", "v", l.keyTTL()*2))
	v.await("the clock's key", func(got map[string]string) bool { return got["clock"] == "v" })
	v.await("end of the clock's key", func(got map[string]string) bool { return got["clock"] == "" })
	want := map[string]string{"freed": "v", "owned": "v", "given": "v"}
	if got := l.list(b); !maps.Equal(want, got) {
		l.Errorf("the store holds %v, want %v", got, want)
	}
	l.close(a)
	l.holds(b, map[string]string{"freed": "v", "given": "v"})
}
