// Package storetest holds the tests that every kvstore.Store must pass: random calls compared with a model, what
// releases a wait, contexts, ownership of values, and linearizability. Only tests import it.
//
// [Call], [Outcome] and [Plan] also drive the tests that compare this module's stores with torch's.
package storetest
