// Package hangs has the tests of jobs that hang and of jobs that only seem to. They run the elasticrun binary on two
// nodes of this machine with the workers in testdata/hangs: in plain Python, and with DistributedDataParallel over gloo
// in real torch. A table names each hang, the odd rank, and what its stack shows. Another table names innocent jobs,
// which look like a hang for a while and then continue.
package hangs
