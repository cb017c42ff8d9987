// Package tcplimit bounds how long the kernel keeps a TCP connection whose peer acknowledges nothing. Without it, TCP
// sends again ever more rarely, up to every two minutes: after a network failure of a minute it may take another minute
// until the connection carries anything. Its functions are safe for concurrent use.
package tcplimit
