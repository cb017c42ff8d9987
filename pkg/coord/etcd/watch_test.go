package etcd

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// TestWatchNotify gives a watch responses that begin with known events, as after an interruption.
func TestWatchNotify(t *testing.T) {
	event := func(key string, create, mod int64) *mvccpb.Event {
		if create == 0 {
			return &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte("root/" + key), ModRevision: mod}}
		}
		return &mvccpb.Event{Kv: &mvccpb.KeyValue{
			Key: []byte("root/" + key), Value: []byte("v"), CreateRevision: create,
			ModRevision: mod,
		}}
	}
	put := func(key string, create coord.Revision) coord.Event {
		return coord.Event{Key: key, Value: []byte("v"), Create: create}
	}
	var got []coord.Batch
	w := &watch{store: &Store{root: "root/"}, handle: func(b coord.Batch) error {
		got = append(got, b)
		return nil
	}}
	for _, events := range [][]*mvccpb.Event{
		{event("a", 3, 3), event("b", 3, 3)},
		{event("a", 3, 3), event("b", 3, 3)},                                          // nothing new
		{event("a", 3, 3), event("b", 3, 3), event("a", 0, 5)},                        // the delete is new
		{event("a", 0, 5), event("a", 7, 7), event("root/c", 2, 7), event("b", 0, 9)}, // two commits
	} {
		if err := w.notify(events); err != nil {
			t.Fatal(err)
		}
	}
	want := []coord.Batch{
		{Revision: 3, Events: []coord.Event{put("a", 3), put("b", 3)}},
		{Revision: 5, Events: []coord.Event{{Key: "a", Deleted: true}}},
		{Revision: 9, Events: []coord.Event{put("a", 7), put("root/c", 2), {Key: "b", Deleted: true}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	if w.next != 10 {
		t.Errorf("the next revision is %d, want 10", w.next)
	}
}
