// Package jobs lists the launchers that run on this machine, and connects to them.
//
//	Folders   where launchers are registered: a folder of each user   (folder.go)
//	Entry     the registration of this process, a listener            (entry.go)
//	List      the launchers that run now, and how to reach them       (list.go)
//	Ended     the record of a launcher that has ended, for its logs   (ended.go)
//	FindPID   the pid of a launcher; of other users', from the kernel (pid.go)
//	IsStopped whether Ctrl-Z has stopped a process                    (socket_linux.go, socket_darwin.go)
//
// A registration is two files: a record, which its process locks for as long as it lives, and a Unix socket, on which
// only the same user and root are served. The lock decides whether a launcher is alive, so nothing has to be cleaned up
// after a process that was killed. The package does not know what is served.
//
// Its functions may be called from any goroutine. Close an Entry once.
package jobs
