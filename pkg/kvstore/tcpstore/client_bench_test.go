package tcpstore

import (
	"context"
	"testing"
)

// BenchmarkClient measures calls to a Server over the loopback interface, with a context that can end.
func BenchmarkClient(b *testing.B) {
	_, addr := startServer(b, ServerOptions{})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	calls := map[string]storeCall{
		"add": add("n", 1),
		"set": set("k", "value"),
		"get": get("k"),
	}
	for _, unconfirmed := range []bool{false, true} {
		c := dialClient(b, addr, ClientOptions{unconfirmed: unconfirmed})
		for _, name := range []string{"add", "set", "get"} {
			if unconfirmed {
				b.Run(name+", unconfirmed", func(b *testing.B) { benchmarkCall(ctx, b, c, calls[name]) })
				continue
			}
			b.Run(name, func(b *testing.B) { benchmarkCall(ctx, b, c, calls[name]) })
			b.Run(name+", no end", func(b *testing.B) { benchmarkCall(context.WithoutCancel(b.Context()), b, c, calls[name]) })
		}
	}
}

func benchmarkCall(ctx context.Context, b *testing.B, c *Client, call storeCall) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := call(ctx, c); err != nil {
			b.Fatal(err)
		}
	}
}
