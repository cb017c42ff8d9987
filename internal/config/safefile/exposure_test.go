package safefile

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

// TestJudge checks the rules by which others could have written a file.
func TestJudge(t *testing.T) {
	const user = 1000
	file := func(uid int, mode fs.FileMode) inode { return inode{"f", regularFile, uid, mode} }
	dir := func(uid int, mode fs.FileMode) inode { return inode{"/d", folder, uid, mode} }
	link := func(uid int) inode { return inode{"l", symlink, uid, 0o777} }
	tests := []struct {
		name   string
		way    []inode
		user   int
		grade  Grade
		remedy string
	}{
		{"own", []inode{dir(user, 0o755), file(user, 0o644)}, user, Unexposed, ""},
		{"root's", []inode{dir(0, 0o755), file(0, 0o644)}, user, Unexposed, ""},
		{"root's in a sticky folder", []inode{dir(0, 0o777|fs.ModeSticky), file(0, 0o644)}, user, Unexposed, ""},
		{
			"linked",
			[]inode{dir(user, 0o755), link(user), dir(0, 0o755), link(0), dir(0, 0o755), file(0, 0o644)},
			user,
			Unexposed,
			"",
		},
		{"another's", []inode{dir(user, 0o755), file(1001, 0o644)}, user, ExposedToAnybody, ""},
		{"an unmapped or squashed owner", []inode{dir(user, 0o755), file(65534, 0o644)}, user, ExposedToAnybody, ""},
		{"an unknown owner", []inode{dir(user, 0o755), file(-1, 0o644)}, user, ExposedToAnybody, ""},
		{"another's, run by root", []inode{dir(0, 0o755), file(1001, 0o644)}, 0, ExposedToAnybody, ""},
		{"writable by all", []inode{dir(user, 0o755), file(user, 0o602)}, user, ExposedToAnybody, "chmod o-w f"},
		{"root's, writable by all", []inode{dir(user, 0o755), file(0, 0o666)}, user, ExposedToAnybody, ""},
		{"root can change all", []inode{dir(0, 0o777), file(0, 0o666)}, 0, ExposedToAnybody, "chmod go-w /d f"},
		{"a group's", []inode{dir(user, 0o755), file(user, 0o660)}, user, ExposedToSome, "chmod g-w f"},
		{"a group's, root's", []inode{dir(user, 0o755), file(0, 0o664)}, user, ExposedToSome, ""},
		{"in a group's folder", []inode{dir(user, 0o2775), file(user, 0o644)}, user, ExposedToSome, "chmod g-w /d"},
		{"in a sticky group's folder", []inode{dir(user, 0o775|fs.ModeSticky), file(user, 0o644)}, user, Unexposed, ""},
		{"in another's folder", []inode{dir(1001, 0o755), file(user, 0o644)}, user, ExposedToSome, ""},
		{"in another's sticky folder", []inode{dir(1001, 0o777|fs.ModeSticky), file(user, 0o644)}, user, ExposedToSome, ""},
		{
			"behind another's link",
			[]inode{dir(0, 0o777|fs.ModeSticky), link(1001), dir(user, 0o755), file(user, 0o644)},
			user,
			ExposedToAnybody,
			"",
		},
		{
			"a group's file in a folder of all",
			[]inode{dir(user, 0o777), file(user, 0o664)},
			user,
			ExposedToAnybody,
			"chmod go-w /d f",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := judge(tt.way, tt.user)
			if got.Grade != tt.grade || got.Remedy != tt.remedy || (got.How == "") != (tt.grade == Unexposed) {
				t.Errorf("got %+v, want grade %d and %q", got, tt.grade, tt.remedy)
			}
		})
	}
}

// TestWayTo checks that a way ends at the file behind all links, or at nothing if that is not visible.
func TestWayTo(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	err := os.WriteFile("real.yaml", nil, 0o644)
	for link, target := range map[string]string{"second": "real.yaml", "first": dir + "/second", "loop": "loop"} {
		err = errors.Join(err, os.Symlink(target, link))
	}
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Stat("real.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		inodes int
		seen   bool
	}{"real.yaml": {1, true}, "first": {5, true}, "gone": {1, false}, "loop": {2 * maxLinks, false}} {
		way, end := wayTo(path)
		if len(way) != want.inodes || (end != nil) != want.seen || end != nil && !os.SameFile(end, file) {
			t.Errorf("%s: %d inodes, end %v", path, len(way), end)
		}
	}
}
