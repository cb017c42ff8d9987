package config

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestExpose holds the rules by which a file counts as one that others could have written.
func TestExpose(t *testing.T) {
	const user = 1000
	file := func(uid int, mode fs.FileMode) inode { return inode{"f", theFile, uid, mode} }
	folder := func(uid int, mode fs.FileMode) inode { return inode{"/d", aFolder, uid, mode} }
	link := func(uid int) inode { return inode{"l", aLink, uid, 0o777} }
	tests := []struct {
		name   string
		way    []inode
		user   int
		grade  exposureGrade
		remedy string
	}{
		{"own", []inode{folder(user, 0o755), file(user, 0o644)}, user, unexposed, ""},
		{"root's", []inode{folder(0, 0o755), file(0, 0o644)}, user, unexposed, ""},
		{"root's in a sticky folder", []inode{folder(0, 0o777|fs.ModeSticky), file(0, 0o644)}, user, unexposed, ""},
		{"linked", []inode{folder(user, 0o755), link(user), folder(0, 0o755), link(0), folder(0, 0o755), file(0, 0o644)}, user, unexposed, ""},
		{"another's", []inode{folder(user, 0o755), file(1001, 0o644)}, user, exposedToAnybody, ""},
		{"an unmapped or squashed owner", []inode{folder(user, 0o755), file(65534, 0o644)}, user, exposedToAnybody, ""},
		{"an unknown owner", []inode{folder(user, 0o755), file(-1, 0o644)}, user, exposedToAnybody, ""},
		{"another's, run by root", []inode{folder(0, 0o755), file(1001, 0o644)}, 0, exposedToAnybody, ""},
		{"writable by all", []inode{folder(user, 0o755), file(user, 0o602)}, user, exposedToAnybody, "chmod o-w f"},
		{"root's, writable by all", []inode{folder(user, 0o755), file(0, 0o666)}, user, exposedToAnybody, ""},
		{"root can change all", []inode{folder(0, 0o777), file(0, 0o666)}, 0, exposedToAnybody, "chmod go-w /d f"},
		{"a group's", []inode{folder(user, 0o755), file(user, 0o660)}, user, exposedToSome, "chmod g-w f"},
		{"a group's, root's", []inode{folder(user, 0o755), file(0, 0o664)}, user, exposedToSome, ""},
		{"in a group's folder", []inode{folder(user, 0o2775), file(user, 0o644)}, user, exposedToSome, "chmod g-w /d"},
		{"in a sticky group's folder", []inode{folder(user, 0o775|fs.ModeSticky), file(user, 0o644)}, user, unexposed, ""},
		{"in another's folder", []inode{folder(1001, 0o755), file(user, 0o644)}, user, exposedToSome, ""},
		{"in another's sticky folder", []inode{folder(1001, 0o777|fs.ModeSticky), file(user, 0o644)}, user, exposedToSome, ""},
		{"behind another's link", []inode{folder(0, 0o777|fs.ModeSticky), link(1001), folder(user, 0o755), file(user, 0o644)}, user, exposedToAnybody, ""},
		{"a group's file in a folder of all", []inode{folder(user, 0o777), file(user, 0o664)}, user, exposedToAnybody, "chmod go-w /d f"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := expose(tt.way, tt.user)
			if got.grade != tt.grade || got.remedy != tt.remedy || (got.how == "") != (tt.grade == unexposed) {
				t.Errorf("got %+v, want grade %d and %q", got, tt.grade, tt.remedy)
			}
		})
	}
}

// TestEffects keeps a new flag that names a file or a command from being taken from a file that others may write.
func TestEffects(t *testing.T) {
	// Whether the value, as the placeholder calls it, can be a path or a command.
	names := map[string]bool{
		"FILE": true, "DIR": true, "CMD": true,
		"": false, "N": false, "N|MIN:MAX": false, "N|auto|cpu|gpu": false, "N|LO-HI": false, "NAME": false, "MODE": false, "ID": false, "K=V,...": false,
		"HOST": false, "PORT": false, "HOST[:PORT]": false, "HOST:PORT": false, "METHOD": false, "STREAMS": false, "RANKS": false, "TEXT,...": false,
		"TEMPLATE": false, "SIZE": false, "SECONDS": false, "WHEN": false, "SIG,...": false, "FROM=TO,...": false, "FORMAT": false, "LEVEL": false,
	}
	for _, f := range Flags() {
		path, known := names[f.Placeholder]
		switch {
		case !known:
			t.Errorf("--%s: can %s be a path or a command? Say so in this test", f.Name, f.Placeholder)
		case path && f.Effect == NoEffect:
			t.Errorf("--%s %s has no effect in the table: does the launcher read, write or execute it?", f.Name, f.Placeholder)
		case !path && f.Effect != NoEffect:
			t.Errorf("--%s %s has an effect in the table; FILE, DIR or CMD should say so", f.Name, f.Placeholder)
		case strings.HasSuffix(f.Name, "-cmd") && f.Effect != Executes:
			t.Errorf("--%s does not execute anything, says the table", f.Name)
		}
	}
}

// TestRefuse holds which effects an exposed file cannot have, whatever flags there are.
func TestRefuse(t *testing.T) {
	flags := []Flag{{Name: "read", Effect: Reads}, {Name: "write", Effect: Writes}, {Name: "run", Effect: Executes}, {Name: "none"}}
	refused := func(c configFile) (names []string) {
		for _, f := range flags {
			err := c.refuse(flags, []Setting{{Name: f.Name, Value: "x", Source: Source{Kind: FromFile}}})
			if usage, ok := errors.AsType[*UsageError](err); ok && usage.Where == "c.yaml: "+f.Name {
				names = append(names, f.Name)
			}
			for _, kind := range []SourceKind{FromDefault, FromScheduler, FromEnv, FromFlag} {
				if err := c.refuse(flags, []Setting{{Name: f.Name, Value: "x", Source: Source{Kind: kind}}}); err != nil {
					t.Errorf("%s, source %d: %v", f.Name, kind, err)
				}
			}
		}
		return names
	}
	some := exposure{grade: exposedToSome, how: "x"}
	for _, tt := range []struct {
		name string
		file configFile
		want []string
	}{
		{"found, unexposed", configFile{path: "c.yaml"}, nil},
		{"named, unexposed", configFile{path: "c.yaml", named: true}, nil},
		{"found, exposed", configFile{path: "c.yaml", exposure: some}, []string{"write", "run"}},
		{"named, exposed", configFile{path: "c.yaml", named: true, exposure: some}, []string{"run"}},
	} {
		if diff := cmp.Diff(tt.want, refused(tt.file)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
