// Package help writes the help texts of elasticrun from the tables of package config. Its test writes docs/flags.md.
//
// Everything is pure and may be called concurrently.
package help
