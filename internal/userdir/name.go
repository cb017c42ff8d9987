package userdir

import (
	"os"
	"strconv"
	"strings"
)

// prefix begins the name of each user's folder.
const prefix = "elasticrun-"

// Name returns the name of a user's folder in a folder that all users share: elasticrun- and the user's id.
//
// For this user, Name takes the id outside of the user namespace. A container or unshare(1) can make an ordinary user
// root of its namespace. Under root's name in the namespace such a process would take the folder of the machine's root.
func Name(uid int) string {
	if uid == os.Geteuid() {
		uid = outerID(uid, userMap())
	}
	return prefix + strconv.Itoa(uid)
}

// Of returns the user whose folder has this name. ok is false if the name is not that of a user's folder.
func Of(name string) (uid int, ok bool) {
	digits, found := strings.CutPrefix(name, prefix)
	uid, err := strconv.Atoi(digits)
	if !found || err != nil || uid < 0 {
		return 0, false
	}
	if own := os.Geteuid(); uid == outerID(own, userMap()) {
		return own, true
	}
	return uid, Name(uid) == name // a user outside may have the number that this one has in the namespace
}

// outerID returns the id that a user of this namespace has in the one around it, or uid if the map does not have the
// user. Each line of userMap is a range of ids: the first id here, the first id outside, and the number of ids.
func outerID(uid int, userMap string) int {
	for line := range strings.Lines(userMap) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		inner, err1 := strconv.Atoi(f[0])
		outer, err2 := strconv.Atoi(f[1])
		count, err3 := strconv.Atoi(f[2])
		if err1 == nil && err2 == nil && err3 == nil && inner <= uid && uid-inner < count {
			return outer + uid - inner
		}
	}
	return uid
}
