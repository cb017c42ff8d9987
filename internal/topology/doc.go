// Package topology reads the facts about a machine that the launcher needs before it starts workers: how many CPUs
// and which GPUs a job may use, which CPUs are near a GPU, and which process holds a TCP port. It does not change the
// machine, and it knows nothing about jobs.
//
// Facts come from files (/proc, /sys, /dev) through an [io/fs.FS], so that a test can describe a machine as a map of
// files. Exported functions without such an argument read the real machine. The environment is read through a
// function with the signature of [os.LookupEnv]. The only program that runs is nvidia-smi, where files do not have
// the answer.
//
// The package caches nothing and keeps no state, so all functions may be called concurrently. One goroutine waits for
// nvidia-smi. It has ended when the function returns, unless the kernel prevents nvidia-smi from ending (see [GPUs]).
package topology
