// Package rdzvconf has the options of elasticrun's rendezvous backends by the names that torchrun gives them in
// --rdzv-conf, and elasticrun's own ones.
//
//	options.go   the table: names, backends, parsers
//	settings.go  the values and their defaults
//	read.go      reads options into settings, and refuses what is unknown or contradictory
//	endpoint.go  reads host[:port]
//
// Package backends uses the settings. The command's configuration reads --rdzv-conf with this package too, so both
// accept the same options. Nothing here connects to anything; only password_file is read. All functions may be called
// from any goroutine.
package rdzvconf
