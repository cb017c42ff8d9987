package rpc_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/elasticrun/elasticrun/pkg/rpc"
)

// BenchmarkFunc compares calls of a Func with a plain unary call of gRPC with default options. Both echo payloads and
// alternate, so they run under the same load. It reports the median times of one call and their quotient. One caller
// shows latency, 16 callers show throughput.
func BenchmarkFunc(b *testing.B) {
	groups := newStaticGroup(b, 2, func(int) *rpc.Functions { return common(b) }, nil)
	bare := bareEcho(b)
	for _, callers := range []int{1, 16} {
		for _, size := range []int{64, 4 << 10, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("callers=%d/bytes=%d", callers, size), func(b *testing.B) {
				payload := make([]byte, size)
				contenders := [2]func() error{
					func() error {
						got, err := echo.Call(b.Context(), groups[0], "worker1", payload)
						return checkLength(got, err, size)
					},
					func() error {
						answer := new(wrapperspb.BytesValue)
						err := bare.Invoke(b.Context(), bareMethod, &wrapperspb.BytesValue{Value: payload}, answer)
						return checkLength(answer.GetValue(), err, size)
					},
				}
				calls := 16 * max(1, min(64, 1<<20/size)) // of one measurement, a few milliseconds
				var times [2][]time.Duration
				for b.Loop() {
					for i, call := range contenders {
						times[i] = append(times[i], turn(b, callers, calls, call))
					}
				}
				var medians [2]float64
				for i := range times {
					slices.Sort(times[i])
					medians[i] = float64(times[i][len(times[i])/2].Nanoseconds()) / float64(calls)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(medians[0], "ns/call")
				b.ReportMetric(medians[1], "ns/bare-call")
				b.ReportMetric(medians[0]/medians[1], "times-bare")
			})
		}
	}
	shutdownAll(b, groups)
}

// checkLength checks an answer.
func checkLength(answer []byte, err error, size int) error {
	if err == nil && len(answer) != size {
		err = fmt.Errorf("answer of %d bytes, want %d", len(answer), size)
	}
	return err
}

// turn makes calls from several callers concurrently and returns the elapsed time.
func turn(b *testing.B, callers, calls int, call func() error) time.Duration {
	b.Helper()
	begun := time.Now()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range calls / callers {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begun)
}

const bareMethod = "/bare.Worker/Call"

// bareEcho returns a connection to a plain gRPC server.
func bareEcho(b *testing.B) *grpc.ClientConn {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server, served := grpc.NewServer(), make(chan struct{})
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "bare.Worker", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Call",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			request := new(wrapperspb.BytesValue)
			return request, decode(request)
		},
	}}}, server)
	go func() {
		defer close(served)
		_ = server.Serve(ln)
	}()
	conn, err := grpc.NewClient("passthrough:///"+ln.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		conn.Close()
		server.Stop()
		<-served
	})
	return conn
}
