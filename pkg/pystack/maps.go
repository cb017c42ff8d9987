package pystack

import (
	"bufio"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
)

// mapping is the start of a file in the memory of a process.
type mapping struct {
	start, end uint64
	inode      uint64
	path       string
}

// deletedMark is what the kernel appends to the path of a deleted file.
const deletedMark = " (deleted)"

// maxMappings bounds the files that a process has mapped. torch maps about 300.
const maxMappings = 1 << 16

// parseMaps returns the mappings of /proc/PID/maps (proc_pid_maps(5)) that begin at the start of a file.
func parseMaps(r io.Reader) ([]mapping, error) {
	var all []mapping
	lines := bufio.NewScanner(r)
	for lines.Scan() && len(all) < maxMappings {
		fields := strings.SplitN(lines.Text(), " ", 6)
		if len(fields) < 6 || strings.Trim(fields[2], "0") != "" || fields[4] == "0" {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		inode, err3 := strconv.ParseUint(fields[4], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			continue
		}
		all = append(all, mapping{
			start: start, end: end, inode: inode,
			path: strings.TrimSuffix(strings.TrimLeft(fields[5], " "), deletedMark),
		})
	}
	return all, lines.Err()
}

// likelyFirst sorts mappings by how likely they contain Python: libpython, the program, the others.
func likelyFirst(all []mapping, program string) {
	rank := func(m mapping) int {
		switch {
		case strings.HasPrefix(path.Base(m.path), "libpython"):
			return 0
		case m.path == program:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(all, func(a, b mapping) int { return rank(a) - rank(b) })
}

// versionOfName returns the version in a file name such as python3.9 or libpython3.9.so.1.0.
func versionOfName(file string) (v Version, ok bool) {
	_, rest, ok := strings.Cut(path.Base(file), "python")
	if !ok {
		return Version{}, false
	}
	first, rest, ok := strings.Cut(rest, ".")
	if !ok {
		return Version{}, false
	}
	end := strings.IndexFunc(rest, func(c rune) bool { return c < '0' || c > '9' })
	if end < 0 {
		end = len(rest)
	}
	v.Micro = -1
	var err1, err2 error
	v.Major, err1 = strconv.Atoi(first)
	v.Minor, err2 = strconv.Atoi(rest[:end])
	return v, err1 == nil && err2 == nil
}
