package tcpstore_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

// A server and a client of it. torch's TCPStore could use the same server.
func Example() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := tcpstore.NewServer(tcpstore.ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := tcpstore.Dial(ctx, listener.Addr().String(), tcpstore.ClientOptions{})
	if err != nil {
		panic(err)
	}
	if err := client.Set(ctx, "color", []byte("green")); err != nil {
		panic(err)
	}
	color, err := client.Get(ctx, "color")
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", color)

	_ = client.Close() // always nil
	_ = server.Close() // always nil
	fmt.Println(<-served)
	// Output:
	// green
	// store is closed
}
