package certfiles

import "time"

// stamp distinguishes versions of a file. The zero value is a file that cannot be found.
type stamp struct {
	inode    uint64
	size     int64
	modified int64 // in ns since 1970
}

// stamps are those of the files, in the order of [Files].
type stamps [3]stamp

// versions records which versions of the files were read.
type versions struct {
	latest  stamps // of the latest reading
	broken  bool   // the files of the latest reading are unusable
	settled bool   // any change since the latest reading has changed the stamps
}

// settleTime is how long a file's modification time may stay the same although the file changes: some file systems
// count in steps of two seconds.
const settleTime = 2 * time.Second

// mustRead reports whether the files must be read. now are their present stamps.
func (v *versions) mustRead(now stamps) bool { return now != v.latest || !v.settled }

// news is what to log after files were read.
type news int

const (
	nothing  news = iota
	replaced      // other files are in use now, or the files are usable again
	unusable      // the files have become unusable
)

// read records that files with these stamps were read at the given time, and whether they are usable.
func (v *versions) read(now stamps, at time.Time, usable bool) news {
	before := *v
	*v = versions{latest: now, broken: !usable, settled: now.settled(at)}
	switch {
	case !usable && !before.broken:
		return unusable
	case usable && (before.broken || before.latest != now):
		return replaced
	}
	return nothing
}

// settled reports whether each change of a file after the given time also changes its stamp.
func (s stamps) settled(at time.Time) bool {
	for _, file := range s {
		if since := at.Sub(time.Unix(0, file.modified)); file != (stamp{}) && since.Abs() < settleTime {
			return false
		}
	}
	return true
}
