package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

const (
	readyKey   = "ready"   // counts the members that have reached the others
	verdictKey = "verdict" // how the meeting has ended, for all
	formedKey  = "read"    // see part
)

// lastWord bounds what a member does in the store when its own context has ended, or the group's work has.
const cleanupTimeout = 2 * time.Second

// verdict is written once. Nobody has succeeded before it says OK, and nobody fails after.
type verdict struct {
	OK   bool   `json:"ok,omitempty"`
	By   string `json:"by,omitempty"` // the member that has given up
	ID   int    `json:"id,omitempty"`
	Text string `json:"text,omitempty"`
}

// Meet forms a static group: it returns when all self.WorldSize members have called it and each has been warmed up, with the
// records of all, by rank. store is the group's own, and serves one meeting: a group that has failed needs a new one, unless only
// one worker has come, which then leaves nothing.
//
// A worker that does not fit is refused by itself, and the others go on waiting, for another one in its place: [*NameError],
// [*RankError], [*WorldSizeError], [*VersionError], [*SecurityError], [*AddressError], [*NameTakenError], [*RankTakenError]. What the
// members say together is checked by each of them, with the same error: [*AddressError], or that of [device.Validate].
//
// warm calls whom it has to, and may be nil. It runs when all members are there; its context ends if the group fails.
// The member that fails in it, or whose context ends, ends the meeting of all: the others get a [*FailedError] that names it. One
// that dies is named by a [*MissingError] when a context ends, unless warm notices it before.
//
// All members end alike, with one exception that no protocol avoids: one that cannot reach the store for two seconds, just
// when the others decide, fails while they may succeed. Each may take that time after ctx has ended, twice where it ends in
// the claim of the rank; and rank 0 waits as long, since it may host the store, until all that have come have read the end.
//
// Six short requests a member and two that wait, O(N) for all; but N members get N records each.
func FormStatic(
	ctx context.Context, store kvstore.Store, self Record, warm func(ctx context.Context, members []Record) error,
) ([]Record, error) {
	if err := self.checkStatic(); err != nil {
		return nil, err
	}
	record, err := self.encode()
	if err != nil {
		return nil, err
	}
	if err := Agree(ctx, store, self); err != nil {
		cleanup, cancel := cleanupContext(ctx)
		defer cancel()
		withdrawTerms(cleanup, store, self) // Its answer may be all that was lost.
		return nil, err
	}
	own := claim{store: store, self: self, record: record}
	if err := own.acquire(ctx); err != nil {
		return nil, err
	}
	m := formation{store: store, self: self, warm: warm}
	err = m.form(ctx)
	cleanup, cancel := cleanupContext(ctx)
	defer cancel()
	if err != nil {
		if !m.othersFail && timedOut(ctx, err) {
			err = m.explain(cleanup, err)
		}
		if m.waitingFor != StepReady && own.undo(cleanup) { // It was alone, and is not counted.
			return nil, err
		}
		if !m.othersFail {
			err = m.giveUp(cleanup, err)
		}
	}
	if err != nil {
		m.leaveStoreAfterFailure(cleanup)
		return nil, err
	}
	leaveStore(cleanup, store, self, formedKey)
	return m.members, nil
}

// lastWords returns a context for what has to be said after ctx has ended.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// part ends a member's use of the store. Rank 0, which may host it, waits until all members have come here. That is all that an
// error could prevent, so there is none.
func leaveStore(ctx context.Context, store kvstore.Store, self Record, key string) {
	n, err := store.Add(ctx, key, 1)
	if err == nil && n >= int64(self.WorldSize) {
		err = store.Set(ctx, "all-"+key, []byte("1"))
	}
	if err == nil && self.ID == 0 {
		_ = store.Wait(ctx, "all-"+key)
	}
}

// dismiss is what part is after a failure: rank 0 waits for those only that have come.
func (m *formation) leaveStoreAfterFailure(ctx context.Context) {
	err := m.store.Set(ctx, formedKey+"/"+strconv.Itoa(m.self.ID), []byte("1"))
	if err != nil || m.self.ID != 0 {
		return
	}
	absent, err := absentKeys(ctx, m.store, rankKeys(rankKey, m.self.WorldSize))
	if err != nil {
		return
	}
	var present []string
	for rank, key := range rankKeys(formedKey+"/", m.self.WorldSize) {
		if !slices.Contains(absent, rank) {
			present = append(present, key)
		}
	}
	if len(present) > 0 {
		_ = m.store.Wait(ctx, present...)
	}
}

// meeting is a member's part in it, once it has claimed its place.
type formation struct {
	store      kvstore.Store
	self       Record
	warm       func(ctx context.Context, members []Record) error
	members    []Record // by rank, once all are there
	waitingFor Step     // what it waits for others to do
	othersFail bool     // the others fail as well
}

// form takes all steps up to the verdict, which is listened for from the beginning: a member that gives up ends every wait.
func (m *formation) form(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	verdicts := make(chan error, 1)
	go func() {
		err := m.waitVerdict(ctx)
		if err != nil {
			cancel(err)
		}
		verdicts <- err
	}()
	err := m.prepare(ctx)
	if err != nil {
		cancel(err)
	}
	verdict := <-verdicts
	cancel(nil)
	if failed, ok := errors.AsType[*FailedError](verdict); ok {
		m.othersFail = true
		return failed
	}
	if err != nil {
		return err
	}
	return verdict
}

// listen waits for the verdict.
func (m *formation) waitVerdict(ctx context.Context) error {
	data, err := m.store.Get(ctx, verdictKey)
	if err != nil {
		return fmt.Errorf("worker %q: wait until the group is complete: %w", m.self.Name, err)
	}
	var v verdict
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("store key %q holds no verdict of a group: %w", verdictKey, err)
	}
	if !v.OK {
		return &FailedError{By: v.By, ID: v.ID, Text: v.Text}
	}
	return nil
}

func (m *formation) prepare(ctx context.Context) error {
	m.waitingFor = StepJoin
	members, err := m.gatherMembers(ctx)
	if err != nil {
		return err
	}
	m.members, m.waitingFor = members, ""
	if err := checkMembers(members, true); err != nil {
		m.othersFail = true // by the same check of the same records
		return err
	}
	if m.warm != nil {
		if err := m.warm(ctx, members); err != nil {
			return fmt.Errorf("warm up worker %q: %w", m.self.Name, err)
		}
	}
	m.waitingFor = StepReady
	return m.reportReady(ctx)
}

// gather waits for all members.
func (m *formation) gatherMembers(ctx context.Context) ([]Record, error) {
	keys := rankKeys(rankKey, m.self.WorldSize)
	values, err := m.store.MultiGet(ctx, keys...)
	if err != nil {
		return nil, fmt.Errorf("worker %q: wait for all members: %w", m.self.Name, err)
	}
	members := make([]Record, len(values))
	for i, value := range values {
		if members[i], err = decodeRecord(keys[i], value); err != nil {
			return nil, err
		}
	}
	return members, nil
}

// ready counts this member in. The last one pronounces the verdict, and every other one leaves a key, so that a member without one
// is the one that has died: before it was counted, or as the last one.
func (m *formation) reportReady(ctx context.Context) error {
	n, err := m.store.Add(ctx, readyKey, 1)
	switch {
	case err != nil:
	case n == int64(m.self.WorldSize):
		_, err = m.writeVerdict(ctx, verdict{OK: true})
	default:
		err = m.store.Set(ctx, readyKey+"/"+strconv.Itoa(m.self.ID), []byte("1"))
	}
	if err != nil {
		return fmt.Errorf("worker %q: tell that it is ready: %w", m.self.Name, err)
	}
	return nil
}

// pronounce writes the verdict, and tells whether the one that counts is OK.
func (m *formation) writeVerdict(ctx context.Context, v verdict) (ok bool, err error) {
	data, err := json.Marshal(v)
	if err != nil {
		return false, err
	}
	got, err := create(ctx, m.store, verdictKey, data)
	if err != nil {
		return false, err
	}
	var counts verdict
	err = json.Unmarshal(got, &counts)
	return counts.OK, err
}

// giveUp ends the meeting for all, because of cause. It returns nil if all were ready before: then it has succeeded.
func (m *formation) giveUp(ctx context.Context, cause error) error {
	ok, err := m.writeVerdict(ctx, verdict{By: m.self.Name, ID: m.self.ID, Text: oneLine(cause)})
	if err == nil && ok {
		return nil
	}
	return cause // the others find out for themselves where the store cannot be told
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// explain names those who are missing, where err is the end of a wait for others.
func (m *formation) explain(ctx context.Context, err error) error {
	prefix := map[Step]string{StepJoin: rankKey, StepReady: readyKey + "/"}[m.waitingFor]
	if prefix == "" {
		return err
	}
	missing := MissingError{Step: m.waitingFor, WorldSize: m.self.WorldSize, Err: err}
	absent, lookErr := absentKeys(ctx, m.store, rankKeys(prefix, m.self.WorldSize))
	for _, rank := range absent {
		missing.Ranks = append(missing.Ranks, rank)
		if m.members != nil {
			missing.Names = append(missing.Names, m.members[rank].Name)
		}
	}
	if lookErr != nil || len(absent) == 0 {
		return err
	}
	return &missing
}

// late tells whether err came with the end of ctx.
func timedOut(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, kvstore.ErrTimeout)
}

// rankKeys returns prefix and rank for all ranks.
func rankKeys(prefix string, worldSize int) []string {
	keys := make([]string, worldSize)
	for i := range keys {
		keys[i] = prefix + strconv.Itoa(i)
	}
	return keys
}

// absentKeys returns the indices of the keys that are not there.
func absentKeys(ctx context.Context, store kvstore.Store, keys []string) ([]int, error) {
	var absent []int
	for i, key := range keys {
		there, err := store.Check(ctx, key)
		if err != nil {
			return nil, err
		}
		if !there {
			absent = append(absent, i)
		}
	}
	return absent, nil
}
