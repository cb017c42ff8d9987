// Package tcplimit bounds how long the kernel keeps a TCP connection whose peer acknowledges nothing. Without it, TCP
// retransmits ever more rarely, up to every two minutes. So after a network failure of a minute it can take another
// minute until the connection carries data. Its functions are safe for concurrent use.
package tcplimit
