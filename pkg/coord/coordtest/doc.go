// Package coordtest has the conformance tests of coordination stores. They check what the interface coord.Store
// promises; each implementation runs them with Run or, if it uses no sockets, with RunInBubble.
//
// A case waits for events of a watch. It waits for time to pass only if the promise is about time. The cases run in
// parallel, so all functions of a Harness must be safe for concurrent use.
package coordtest
