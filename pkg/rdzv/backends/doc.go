// Package backends has the creators of elasticrun's rendezvous backends, for programs that run agents of their own:
//
//	handler, err := backends.New(ctx, rdzv.Parameters{
//		Backend: rdzv.BackendC10d, Endpoint: "node0:29400", RunID: "job7", MinNodes: 1, MaxNodes: 4,
//	}, backends.Options{Job: rounds.Job{MaxRestarts: 3}})
//
// [Register] adds the creators to a registry that has, or gets, other backends beside these. The elasticrun command
// uses the same creators.
//
//	c10d    the agent at the endpoint's address hosts the store, later with other agents, or elasticrun store does
//	etcd    the endpoint is a list of etcd members
//	static  the endpoint is the workers' master address; the option rank says which node this is
//
// The options in [rdzv.Parameters].Config are those of --rdzv-conf (package rdzvconf, docs/flags.md) and rank, this
// node's rank or a hint for it. An unknown option is an error; one without effect is a warning in the log.
//
// The creators may be called from any goroutine. They connect to nothing: the handler's first NextRendezvous does.
// Package agent uses the handlers; this package does not know it.
package backends
