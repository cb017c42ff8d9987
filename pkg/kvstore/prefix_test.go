package kvstore

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPrefixStore(t *testing.T) {
	ctx := t.Context()
	under := NewHashStore()
	s := NewPrefixStore("outer", NewPrefixStore("inner", under))
	at := func(key string) string { return "inner/outer/" + key }
	hold := func(key, want string) {
		t.Helper()
		if ok, err := under.Check(ctx, at(key)); !ok || err != nil {
			t.Fatalf("%q is not there: %v", at(key), err)
		}
		if got, err := under.Get(ctx, at(key)); string(got) != want || err != nil {
			t.Fatalf("%q holds %q, %v; want %q", at(key), got, err, want)
		}
	}
	err := s.Set(ctx, "set", []byte("1"))
	hold("set", "1")
	sum, addErr := s.Add(ctx, "add", 2)
	hold("add", "2")
	held, casErr := s.CompareSet(ctx, "cas", nil, []byte("3"))
	hold("cas", "3")
	appendErr := s.Append(ctx, "set", []byte("4"))
	hold("set", "14")
	pairs := []Pair{{"", []byte("5")}, {"/", []byte("6")}}
	multiErr := s.MultiSet(ctx, pairs...)
	hold("", "5")
	hold("/", "6")
	if err := errors.Join(err, addErr, casErr, appendErr, multiErr); err != nil || sum != 2 || string(held) != "3" {
		t.Errorf("%v, sum %d, held %q", err, sum, held)
	}
	if diff := cmp.Diff([]Pair{{"", []byte("5")}, {"/", []byte("6")}}, pairs); diff != "" {
		t.Errorf("MultiSet changed its arguments:\n%s", diff)
	}
	if got, err := s.Get(ctx, "set"); string(got) != "14" || err != nil {
		t.Errorf("Get = %q, %v", got, err)
	}
	if got, err := s.MultiGet(ctx, "add", ""); len(got) != 2 || string(got[0])+string(got[1]) != "25" || err != nil {
		t.Errorf("MultiGet = %q, %v", got, err)
	}
	keys := []string{"add", "cas"}
	if ok, err := s.Check(ctx, keys...); !ok || err != nil || keys[0] != "add" {
		t.Errorf("Check = %v, %v; its keys are %q", ok, err, keys)
	}
	if err := s.Wait(ctx, keys...); err != nil {
		t.Error(err)
	}
	if ok, err := s.Delete(ctx, "add"); !ok || err != nil {
		t.Errorf("Delete = %v, %v", ok, err)
	}
	if ok, err := under.Check(ctx, at("add")); ok || err != nil {
		t.Errorf("Check after Delete = %v, %v", ok, err)
	}
	under.Set(ctx, "elsewhere", nil)
	if n, err := s.NumKeys(ctx); n != 5 || err != nil {
		t.Errorf("NumKeys = %d, %v; want all 5", n, err)
	}
}
