package filestore

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/storetest"
)

// Calls(false), because Add reads an empty value as 0.
func TestConforms(t *testing.T) { storetest.Conform(t, storetest.Calls(false), openShared) }

func TestIsLinearizable(t *testing.T) { storetest.Linearizable(t, storetest.SharedKeys, openShared) }

// openShared opens several stores on one file.
func openShared(t storetest.Scope) []kvstore.Store {
	folder, err := os.MkdirTemp("", "elasticrun-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	stores := make([]kvstore.Store, storetest.Clients)
	for i := range stores {
		s, err := Open(context.Background(), filepath.Join(folder, "store"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		stores[i] = s
	}
	return stores
}
