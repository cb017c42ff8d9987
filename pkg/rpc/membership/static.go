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
	readyKey   = "ready"   // the number of members that are ready
	verdictKey = "verdict" // the result of the formation, for all members
	formedKey  = "read"    // see leaveStore
)

// cleanupTimeout limits a member's store operations after its own context or the group's work has ended.
const cleanupTimeout = 2 * time.Second

// verdict is written once. No member succeeds before it says OK. After that, only a member that cannot reach the store
// fails.
type verdict struct {
	OK   bool   `json:"ok,omitempty"`
	By   string `json:"by,omitempty"` // the member that gave up
	ID   int    `json:"id,omitempty"`
	Text string `json:"text,omitempty"`
}

// FormStatic forms a static group. It returns once all self.WorldSize members have called it and warm has returned in
// each. It returns the records of all members by rank. The keys of store must be the group's alone. A store serves one
// formation: a group that failed needs a new one, unless only one worker came, which then leaves nothing.
//
// A worker that does not fit gets an error, and the others wait for another worker in its place: [*NameError],
// [*RankError], [*WorldSizeError], [*VersionError], [*SecurityError], [*AddressError], [*NameTakenError],
// [*RankTakenError]. Each member then checks all records together and gets the same error as the others:
// [*AddressError], or that of [device.Validate].
//
// warm makes this member's first calls to other members. It may be nil. It runs once all members have come; its context
// ends if the formation fails. A member whose warm fails, or whose context ends, ends the formation for all: the others
// get a [*FailedError] that names it. A member that dies is named by a [*MissingError] when a context ends, unless warm
// notices the death earlier.
//
// All members get the same outcome, with one exception that no protocol avoids: a member that cannot reach the store
// for two seconds just when the others decide fails, while they may succeed. Each member may take these two seconds
// after ctx has ended, and twice that if ctx ends during the claim of the rank. Rank 0 may host the store, so it waits
// as long until all members that came have read the result.
//
// Each member makes seven short store operations and two that wait, O(N) in all. But N members get N records each.
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
		withdrawTerms(cleanup, store, self) // Agree may have set the terms although its reply was lost.
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
		// Undo works only if nobody else came and this member is not counted as ready.
		if m.waitingFor != StepReady && own.undo(cleanup) {
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

// cleanupContext returns a context for store operations after ctx has ended.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// leaveStore ends a member's use of the store. Rank 0, which may host the store, waits until all members have called
// leaveStore. It returns no error, because a failure only prevents this wait.
func leaveStore(ctx context.Context, store kvstore.Store, self Record, key string) {
	n, err := store.Add(ctx, key, 1)
	if err == nil && n >= int64(self.WorldSize) {
		err = store.Set(ctx, "all-"+key, []byte("1"))
	}
	if err == nil && self.ID == 0 {
		_ = store.Wait(ctx, "all-"+key)
	}
}

// leaveStoreAfterFailure is leaveStore for a failed formation: rank 0 waits only for the members that came.
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

// formation is one member's view of the formation, after it has claimed its name and rank.
type formation struct {
	store      kvstore.Store
	self       Record
	warm       func(ctx context.Context, members []Record) error
	members    []Record // by rank; nil until all members have come
	waitingFor Step     // the step for which it waits for others
	othersFail bool     // the other members fail too, so no verdict is needed
}

// form takes all steps up to the verdict. It waits for the verdict from the start, so a member that gives up ends every
// wait.
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

// waitVerdict waits for the verdict.
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
		m.othersFail = true // because all members check the same records
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

// gatherMembers waits for the records of all members.
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

// reportReady counts this member as ready. The last member writes the verdict, and each other member sets its own key.
// So a member without a key has died, either before it was counted or as the last one.
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
		return fmt.Errorf("worker %q: report that it is ready: %w", m.self.Name, err)
	}
	return nil
}

// writeVerdict writes v unless there is a verdict, and reports whether the stored verdict is OK.
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

// giveUp ends the formation for all members because of cause. It returns nil if all members were ready before, which
// means that the formation succeeded.
func (m *formation) giveUp(ctx context.Context, cause error) error {
	ok, err := m.writeVerdict(ctx, verdict{By: m.self.Name, ID: m.self.ID, Text: oneLine(cause)})
	if err == nil && ok {
		return nil
	}
	return cause // without the store, the others notice it through their own timeout
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// explain returns a MissingError that names the missing members. err is the error of a wait for them.
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

// timedOut reports whether err is due to the end of ctx or a timeout.
func timedOut(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, kvstore.ErrTimeout)
}

// rankKeys returns the key prefix + rank for each rank.
func rankKeys(prefix string, worldSize int) []string {
	keys := make([]string, worldSize)
	for i := range keys {
		keys[i] = prefix + strconv.Itoa(i)
	}
	return keys
}

// absentKeys returns the indices of the keys that do not exist.
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
