package tcpstore

import (
	"context"
	"net"
	"slices"
	"testing"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/storetest"
)

func TestClientConforms(t *testing.T) { storetest.Conform(t, storetest.Calls(true), openClients) }

func TestClientIsLinearizable(t *testing.T) {
	storetest.Linearizable(t, storetest.SeparateKeys, openClients)
}

// openClients dials clients of a new Server.
func openClients(t storetest.Scope) []kvstore.Store { return dialAll(t, serve(t), ProtocolV2) }

// serve starts a Server and returns its address.
func serve(t storetest.Scope) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-served })
	return l.Addr().String()
}

// dialAll dials several clients of one server.
func dialAll(t storetest.Scope, addr string, p Protocol) []kvstore.Store {
	return dialEach(t, addr, slices.Repeat([]ClientOptions{{Protocol: p}}, storetest.Clients))
}

// dialEach dials one client for each of kinds, and returns them in turn.
func dialEach(t storetest.Scope, addr string, kinds []ClientOptions) []kvstore.Store {
	var clients []kvstore.Store
	for _, opts := range kinds {
		client, err := Dial(context.Background(), addr, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		clients = append(clients, client)
	}
	return slices.Repeat(clients, storetest.Clients)[:storetest.Clients]
}
