// Package listen opens the listeners that flags ask for, and explains in terms of flags why a port cannot be used:
// which flag named it, which process holds it, and what to do.
//
// It holds no state. Its functions may be called from any goroutine.
package listen
