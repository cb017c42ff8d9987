// Package doctor checks whether a machine is fit for a job, for elasticrun doctor and --preflight.
//
// read reads the machine into facts, and judge, a pure function, turns them into checks. A [Check] has a name, a
// status, a value and advice. It fails only if a launch is sure to fail, or would train on broken hardware; what may be
// intended, or may pass, is a warning. The package changes nothing on the machine.
//
// The functions may be called from any goroutine. Examine may replace a host name in the configuration by an address.
package doctor
