// Package sdnotify reports to the service manager that started this program, in the protocol of sd_notify(3): datagrams
// to the socket that NOTIFY_SOCKET names. Without that variable nothing happens.
//
// The package does not change the environment. A Manager may be used concurrently.
package sdnotify
