// Package urlrdzv lets the workers of a job find each other by a URL, such as env://, tcp://HOST:PORT or file:///PATH.
// The URL becomes a store that all workers share, this worker's rank and the number of workers.
//
// The rules are those of torch.distributed (torch 2.14, torch/distributed/rendezvous.py), so workers in Go and in
// Python can belong to one job. Workers use this package. The agents of the nodes do not: they use a backend of a
// [rdzv.Registry] instead.
//
// [Schemes.Register] must not run beside other calls. All other methods of [Schemes] are safe for concurrent use; a
// [Rendezvous] and a [Result] belong to one goroutine at a time.
package urlrdzv
