// Package rpc lets the workers of a job call each other's functions, by name and with Go types: the counterpart of
// torch.distributed.rpc for workers in Go, which elasticrun or torchrun have started (seed 004).
//
//	var sum = rpc.NewFunc[[]float64, float64]("sum") // a name and its types, known to all workers
//
//	func worker(ctx context.Context) error {
//		fns := rpc.NewFunctions()
//		err := sum.Handle(fns, func(ctx context.Context, xs []float64) (total float64, err error) {
//			for _, x := range xs {
//				total += x
//			}
//			return total, nil
//		})
//		if err != nil {
//			return err
//		}
//		g, err := rpc.InitFromEnv(ctx, "worker"+os.Getenv("RANK"), fns)
//		if err != nil {
//			return err
//		}
//		defer g.Close()
//		total, err := sum.Call(ctx, g, "worker0", []float64{1, 2, 3})
//		if err != nil {
//			return err
//		}
//		fmt.Println(total)
//		return g.Shutdown(ctx)
//	}
//
// # Parts
//
//	Func, Functions   what can be called: a name and its types; the table of those that a worker serves
//	Group             who can be called; Init, InitFromEnv, Shutdown and Close
//	Registry          the backends, by name; a backend's Agent finds the members and carries bytes to them
//	GRPCOptions       the options of the backend that the package has
//
// A call goes from Func (encodes) to Group (deadline, errors) to Agent (network); on the other side from the Agent
// to the group's [Handler], which decodes, runs the function and encodes. A call to the worker itself takes the same way, so
// that nothing works there which would fail between two. Functions know through [Incoming] who has called, and may make calls of
// their own.
//
// # Groups
//
// A static group has a known world size: Init returns when all are in, and Shutdown when all have come to it. A dynamic one has none;
// members come and go, and [Group.View] tells of it. Whoever hosts the store that the members share has to leave last.
// After a restart by the launcher workers form a new group on the new round's store.
//
// # Encoding
//
// It follows from a type alone, whatever the value is:
//
//   - []byte goes as it is, and is not copied;
//   - a type which has AppendBinary or MarshalBinary, and UnmarshalBinary, makes its own bytes;
//   - all else is CBOR (RFC 8949), with json's or cbor's struct tags. Floating-point numbers keep their width and their
//     bits, times their zone, nil and empty slices their difference; types with MarshalText and UnmarshalText are texts. Fields that
//     one side lacks are left out. In a value of type any, what arrives is what the CBOR library makes of it: uint64, map[any]any.
//
// Both sides must name the same types. Bytes that do not fit are an [EncodingError]; two structs may differ without one. Types that
// cannot be sent are refused by Handle and Call: channels, functions, and interfaces but any.
//
// # Errors
//
// What a function returns, or panics with, is the caller's [RemoteError]: its type's name, its text, and the stacks of all workers that it
// has passed through. Everything else is a [CallError] with the worker, the function and one of the package's errors, such
// as [ErrTimeout]. After either the group is as usable as before. No call is sent twice.
//
// # Concurrency
//
// Everything but a [Registry] in the making may be used by any number of goroutines. Each incoming call has a goroutine of
// its own, and there is no limit to them, because nested calls would wait for each other's. The goroutines of a group, those of
// [Func.Go] among them, have ended when Shutdown or Close returns. Only functions may outlive Close, which ends their contexts and does not wait for
// them; Shutdown does.
package rpc
