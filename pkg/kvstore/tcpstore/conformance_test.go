package tcpstore

import (
	"context"
	"net"
	"testing"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/storetest"
)

func TestClientConforms(t *testing.T) { storetest.Conform(t, storetest.Calls(true), openClients) }

func TestClientIsLinearizable(t *testing.T) {
	storetest.Linearizable(t, storetest.SeparateKeys, openClients)
}

// openClients dials clients of a new Server.
func openClients(t storetest.Scope) []kvstore.Store {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-served })
	return dialAll(t, l.Addr().String(), ProtocolV2)
}

// dialAll dials several clients of one server.
func dialAll(t storetest.Scope, addr string, p Protocol) []kvstore.Store {
	stores := make([]kvstore.Store, storetest.Clients)
	for i := range stores {
		client, err := Dial(context.Background(), addr, ClientOptions{Protocol: p})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		stores[i] = client
	}
	return stores
}
