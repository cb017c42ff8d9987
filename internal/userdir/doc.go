// Package userdir finds the folder in which the processes of this user on one machine find each other, and the user at
// the other end of a Unix socket.
//
//	Find     where the folder is: XDG_RUNTIME_DIR, else /run/user/UID, else the temporary folder   (userdir.go)
//	Check    refuses a folder that another user made or can change                                (userdir.go)
//	Make     makes the folder, and checks it                                                       (userdir.go)
//	Name     the name of a user's folder in one that all users share; Of is the reverse            (name.go)
//	PeerUID  the user at the other end of a connection                                             (peer_*.go)
//	Owner    the user who owns a file                                                              (userdir.go)
//
// Errors are clauses that follow [Dir].Source, the setting that chose the folder. The package keeps no state. Its
// functions may be called from any goroutine.
package userdir
