package transport

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// bareMethod echoes a protobuf message over plain gRPC with default options.
const bareMethod = "/bare.Worker/Call"

// bareCall returns a call of a plain gRPC server.
func bareCall(b *testing.B) func(payload []byte) error {
	b.Helper()
	ln, s, served := listen(b), grpc.NewServer(), make(chan struct{})
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "bare.Worker", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Call",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			request := new(wrapperspb.BytesValue)
			return request, decode(request)
		},
	}}}, s)
	go func() {
		defer close(served)
		_ = s.Serve(ln)
	}()
	cc, err := grpc.NewClient(
		"passthrough:///"+ln.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		cc.Close()
		s.Stop()
		<-served
	})
	return func(payload []byte) error {
		answer := new(wrapperspb.BytesValue)
		return cc.Invoke(b.Context(), bareMethod, &wrapperspb.BytesValue{Value: payload}, answer)
	}
}

// packageCall returns a call of a Server of this package.
func packageCall(b *testing.B) func(payload []byte) error {
	b.Helper()
	_, addr := serve(b, ServerOptions{Handle: echo})
	p := newPool(b, ClientOptions{})
	return func(payload []byte) error {
		_, err := p.Call(b.Context(), addr, payload)
		return err
	}
}

// BenchmarkCall echoes payloads. One caller shows latency, 16 callers show throughput.
func BenchmarkCall(b *testing.B) {
	calls := []struct {
		name string
		call func(*testing.B) func([]byte) error
	}{{"bare", bareCall}, {"ours", packageCall}}
	for _, callers := range []int{1, 16} {
		for _, size := range []int{64, 4 << 10, 64 << 10, 1 << 20} {
			for _, c := range calls {
				b.Run(fmt.Sprintf("callers=%d/bytes=%d/%s", callers, size, c.name), func(b *testing.B) {
					call, payload := c.call(b), make([]byte, size)
					if err := call(payload); err != nil {
						b.Fatal(err)
					}
					b.SetBytes(2 * int64(size))
					b.ReportAllocs()
					b.ResetTimer()
					shareCalls(b, callers, func() error { return call(payload) })
				})
			}
		}
	}
}

// shareCalls makes b.N calls from several callers.
func shareCalls(b *testing.B, callers int, call func() error) {
	b.Helper()
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for range (b.N + caller) / callers {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
