package kvstore_test

import (
	"context"
	"net"
	"testing"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/storetest"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

func TestHashStoreConforms(t *testing.T) { storetest.Conform(t, storetest.Calls(true), openHash) }

func TestPrefixStoreConforms(t *testing.T) { storetest.Conform(t, storetest.Calls(true), openPrefixes) }

func TestHashStoreIsLinearizable(t *testing.T) {
	storetest.Linearizable(t, storetest.SharedKeys, openHash)
}

func openHash(storetest.Scope) []kvstore.Store {
	s := kvstore.NewHashStore()
	return []kvstore.Store{s, s, s}
}

// openPrefixes creates namespaces in one store of a server, which also holds another namespace.
func openPrefixes(t storetest.Scope) []kvstore.Store {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := tcpstore.NewServer(tcpstore.ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-served })
	stores := make([]kvstore.Store, storetest.Clients)
	for i := range stores {
		client, err := tcpstore.Dial(context.Background(), l.Addr().String(), tcpstore.ClientOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		err = kvstore.NewPrefixStore("other", client).Set(context.Background(), "a", []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		stores[i] = kvstore.NewPrefixStore("p/q", client)
	}
	return stores
}
