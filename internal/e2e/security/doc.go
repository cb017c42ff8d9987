// Package security attacks whole jobs. Its tests start the elasticrun binary and play hostile peers: they replay, relay
// and change what was sent, pretend to be a store, use old secrets and other sessions' tokens, write others' keys, and
// crowd the port of a running job. The peers speak the agents' protocol by themselves (peer_test.go), on plain sockets,
// so that they can break each of its rules and do not share the product's defects. These tests prove the claims of
// docs/security.md.
package security
