// Package device checks the device maps of a group of workers, and derives what each worker needs from them: which
// devices a worker has, and which device of one worker corresponds to which device of another. The rules are those of
// torch 2.14 torch/distributed/rpc/backend_registry.py (_validate_device_maps). It does not read the machine: callers
// give the number of GPUs.
//
// Every function is pure, so all of them are safe for concurrent use.
package device
