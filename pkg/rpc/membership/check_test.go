package membership

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

func TestCheckName(t *testing.T) {
	for name, good := range map[string]bool{
		"a": true, "Worker-1_a:b.c": true, strings.Repeat("x", 127): true,
		"": false, strings.Repeat("x", 128): false,
		"a b": false, "a/b": false, "wörker": false, "a\n": false, "a\x00": false,
	} {
		var bad *NameError
		if err := CheckName(name); (err == nil) != good || !good && (!errors.As(err, &bad) || bad.Name != name) {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
}

func TestAgree(t *testing.T) {
	store, ctx := kvstore.NewHashStore(), t.Context()
	dynamic := func(name string, modify func(*Record)) Record {
		r := Record{Version: Version, Name: name}
		modify(&r)
		return r
	}
	for range 2 { // a member may call Agree twice
		if err := Agree(ctx, store, dynamic("a", func(*Record) {})); err != nil {
			t.Fatal(err)
		}
	}
	if err := Agree(ctx, store, dynamic("b", func(r *Record) { r.Incarnation = 5 })); err != nil {
		t.Error(err)
	}
	err := Agree(ctx, store, dynamic("c", func(r *Record) { r.WorldSize = 2 }))
	diff := cmp.Diff(&WorldSizeError{Worker: "c", WorldSize: 2, By: "a"}, err)
	if diff != "" || !strings.Contains(err.Error(), "dynamic") {
		t.Errorf("%v:\n%s", err, diff)
	}
	store.Set(ctx, termsKey, []byte("torch"))
	err = Agree(ctx, store, dynamic("d", func(*Record) {}))
	if err == nil || !strings.Contains(err.Error(), termsKey) {
		t.Errorf("terms of somebody else: %v", err)
	}
}

func TestErrorTexts(t *testing.T) {
	ranks := make([]int, 20)
	for i := range ranks {
		ranks[i] = i
	}
	for want, err := range map[string]error{
		`worker name "a b" of 3 bytes: use 1 to 127 of letters, digits, '-', '_', ':' and '.'`: &NameError{Name: "a b"},
		`worker "a" has TLS, but worker "b" has not: `: &SecurityError{
			Worker: "a", Secure: true, By: "b",
		},
		`worker "b" has TLS, but worker "a" has not: `:                   &SecurityError{Worker: "a", By: "b"},
		`worker "a": world size 0: must be at least 1 in a static group`: &WorldSizeError{Worker: "a"},
		`2 of 4 workers have not become ready: ranks 1, 3 (c): `: &MissingError{
			Step: StepReady, Ranks: []int{1, 3}, Names: []string{"", "c"}, WorldSize: 4, Err: kvstore.ErrTimeout,
		},
		`ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 4 more: `: &MissingError{
			Ranks: ranks, Err: kvstore.ErrTimeout,
		},
	} {
		if text := err.Error(); !strings.Contains(text, want) || strings.Contains(text, "\n") {
			t.Errorf("text %q, want %q", text, want)
		}
	}
}

// A record that one member writes means the same to all readers. Any other input is an error and does not panic.
func FuzzRecord(f *testing.F) {
	r := member(1, 3)
	r.DeviceMaps = map[string]device.Map{"w0": {device.CUDA(0): device.CPU()}}
	r.Devices = []device.Device{device.CUDA(1)}
	data, err := r.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"devices":["cpu:1"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRecord("k", data)
		if err != nil {
			return
		}
		_ = checkMembers([]Record{r, member(0, 2)}, true)
		again, err := r.encode()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		var second Record
		if err := json.Unmarshal(again, &second); err != nil {
			t.Fatal(err)
		}
		third, err := second.encode()
		if err != nil || string(third) != string(again) {
			t.Errorf("%s became %s, %v", again, third, err)
		}
	})
}
