package safefile

import (
	"fmt"
	"strconv"

	"github.com/elasticrun/elasticrun/internal/printable"
)

// Disclosure says how other users than this one and root may read or change an open file. The zero value means that
// they may not.
type Disclosure struct {
	// How is a clause for people: "others than its owner may read or change it (mode 0644)". It is empty if the file is
	// not disclosed.
	How string
	// Remedy is a command or an advice that removes the disclosure.
	Remedy string
}

// disclosure judges an open file by its owner and mode, for the user with this uid. The folders on the way to it do not
// count: who replaces the file does not learn what it held. The mode does not count for a sealed file; see isSealed.
func (n inode) disclosure(user int, sealed bool) Disclosure {
	path := printable.ShellWord(n.path)
	switch {
	case !n.isOwn(user) && user == 0:
		return Disclosure{How: n.foreign(user), Remedy: "chown 0 " + path}
	case !n.isOwn(user):
		return Disclosure{How: n.foreign(user), Remedy: "use a file of your own that only you may read"}
	case sealed || n.mode&0o066 == 0:
		return Disclosure{}
	}
	d := Disclosure{How: fmt.Sprintf("others than its owner may read or change it (mode %04o)", unixMode(n.mode))}
	if d.Remedy = "chmod 600 " + path; n.uid != user && user != 0 {
		d.Remedy = "use a file of your own that only you may read, because this one belongs to uid " + strconv.Itoa(n.uid)
	}
	return d
}
