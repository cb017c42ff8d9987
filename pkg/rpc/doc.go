// Package rpc lets the Go workers of a job call each other's functions, by name and with Go types.
//
// It is the counterpart of torch.distributed.rpc (torch 2.14 torch/distributed/rpc/api.py) for workers that
// elasticrun or torchrun has started. It does not speak torch's protocol: all workers of a group are Go programs. It
// moves no tensors, has no remote references, and the launcher does not use it.
//
//	var sum = rpc.NewFunc[[]float64, float64]("sum")       // name and types, known to all workers
//	err := sum.Handle(functions, func(...) ...)            // code, in the workers that serve it
//	g, err := rpc.InitFromEnv(ctx, "worker0", functions)   // join the group
//	total, err := sum.Call(ctx, g, "worker1", numbers)     // call another worker
//	err = g.Shutdown(ctx)                                  // wait until no member needs this worker
//
// # Types
//
//	Func, Functions   a function by name and types; the table of functions that a worker serves
//	Group             the members, seen by one of them; Init, InitFromEnv, Shutdown and Close
//	Registry          the backends by name; the Agent of a backend finds the members and carries bytes
//	GRPCOptions       the options of the built-in backend
//
// A call passes from Func (encoding) to Group (deadline, errors) and Agent (network). On the other worker it passes
// from the Agent to the [Handler] of the group, which decodes the request, runs the function and encodes the answer.
// A call to the worker itself takes the same path without the network, so it has the same limits. Functions get their
// caller from [Incoming] and can make nested calls.
//
// # Groups
//
// A static group has a known world size. Init returns when all members have joined, and Shutdown when all members
// have called it. A dynamic group has no world size: members join and leave, and [Group.View] shows the current ones.
// The process that hosts the store must end last. After a restart by the launcher the workers form a new group on the
// store of the new round.
//
// # Encoding
//
// The type alone selects the encoding:
//
//   - []byte is sent unchanged and without a copy.
//   - A type with AppendBinary or MarshalBinary, and UnmarshalBinary, encodes itself.
//   - All other types use CBOR (RFC 8949), with the struct tags of json or cbor. Floating-point numbers keep their
//     width and bits, times keep their offset from UTC, and nil slices differ from empty ones. A type with MarshalText
//     and UnmarshalText is a text. Fields that one side lacks are ignored. A value of type any arrives as the type that
//     the CBOR library chooses, such as uint64 or map[any]any.
//
// Both sides must use the same types. Bytes that do not fit cause an [EncodingError], but two different structs may
// fit. Handle and Call reject types that cannot be sent: channels, functions, and interfaces except any.
//
// # Errors
//
// If a function returns an error or panics, the caller gets a [RemoteError] with the type name, the text, and the
// stacks of all workers that the error has passed through. Any other failure is a [CallError] with the worker, the
// function and an error of this package, such as [ErrTimeout]. The group stays usable after both. No call is sent
// twice.
//
// # Concurrency
//
// Everything is safe for concurrent use, except [Registry.Register]. Each incoming call has its own goroutine. Their
// number has no limit, because nested calls could otherwise wait for each other forever. When Shutdown or Close
// returns, the goroutines of the group have ended, including those of [Func.Go]. Only functions can outlive Close,
// which ends their contexts but does not wait for them. Shutdown waits for them.
package rpc
