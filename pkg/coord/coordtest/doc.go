// Package coordtest is the conformance suite of coordination stores: what package coord's
// Store promises, as tests that each implementation runs with Run.
//
// A case waits for what a watch sees, never for time to pass, but where a promise is about time.
package coordtest
