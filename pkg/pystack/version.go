package pystack

import "fmt"

// Version is a version of CPython.
type Version struct {
	Major, Minor int
	// Micro is the third number. It is -1 before 3.11, where no symbol has it.
	Micro int
}

// String returns the version, such as "3.11.2", or "3.9" without a third number.
func (v Version) String() string {
	if v.Micro < 0 {
		return fmt.Sprintf("%d.%d", v.Major, v.Minor)
	}
	return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro)
}

// The versions that the package reads.
const (
	major       = 3
	oldestMinor = 9
	newestMinor = 15
)

// versionOf decodes PY_VERSION_HEX, whose bytes are major, minor and micro version, and the kind of release (CPython
// Include/patchlevel.h).
func versionOf(hex uint64) Version {
	return Version{Major: int(hex >> 24 & 0xff), Minor: int(hex >> 16 & 0xff), Micro: int(hex >> 8 & 0xff)}
}

// check returns an UnsupportedError for a version that the package does not read.
func (v Version) check() error {
	switch {
	case v.Major < major || v.Major == major && v.Minor < oldestMinor:
		return unsupported("python %d.%d is older than %d.%d", v.Major, v.Minor, major, oldestMinor)
	case v.Major > major || v.Minor > newestMinor:
		return unsupported("python %d.%d is newer than %d.%d", v.Major, v.Minor, major, newestMinor)
	}
	return nil
}
