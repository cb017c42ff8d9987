package safefile

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDisclosure checks by which owners and modes others than the user and root may read or change a file.
func TestDisclosure(t *testing.T) {
	const user, other = 1000, 1001
	tests := []struct {
		name   string
		user   int
		uid    int
		mode   fs.FileMode
		sealed bool
		remedy string // a part of it; empty if the file is not disclosed
	}{
		{name: "own", user: user, uid: user, mode: 0o600},
		{name: "own, read only", user: user, uid: user, mode: 0o400},
		{name: "own, executable by all", user: user, uid: user, mode: 0o711},
		{name: "root's", user: user, uid: 0, mode: 0o400},
		{name: "root's own", user: 0, uid: 0, mode: 0o600},
		{name: "a group reads", user: user, uid: user, mode: 0o640, remedy: "chmod 600 'a file'"},
		{name: "a group writes", user: user, uid: user, mode: 0o620, remedy: "chmod 600 'a file'"},
		{name: "others read", user: user, uid: user, mode: 0o604, remedy: "chmod 600 'a file'"},
		{name: "others write", user: user, uid: user, mode: 0o602, remedy: "chmod 600 'a file'"},
		{name: "all read root's own", user: 0, uid: 0, mode: 0o644, remedy: "chmod 600 'a file'"},
		{name: "a group reads root's", user: user, uid: 0, mode: 0o640, remedy: "use a file of your own"},
		{name: "a Secret of Kubernetes", user: user, uid: 0, mode: 0o440, sealed: true},
		{name: "a Secret with the default mode", user: user, uid: 0, mode: 0o644, sealed: true},
		{name: "another's", user: user, uid: other, mode: 0o600, remedy: "use a file of your own"},
		{name: "another's, on a sealed mount", user: user, uid: other, mode: 0o400, sealed: true, remedy: "use a file of your own"},
		{name: "another's, for root", user: 0, uid: other, mode: 0o600, remedy: "chown 0 'a file'"},
		{name: "an unmapped owner's", user: 0, uid: 65534, mode: 0o600, remedy: "chown 0 'a file'"},
		{name: "an unknown owner's", user: user, uid: -1, mode: 0o600, remedy: "use a file of your own"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := inode{"a file", regularFile, tt.uid, tt.mode}.disclosure(tt.user, tt.sealed)
			if (got.How == "") != (tt.remedy == "") || !strings.HasPrefix(got.Remedy, tt.remedy) {
				t.Errorf("got %+v, want the remedy %q", got, tt.remedy)
			}
		})
	}
}

// TestDisclosureOfDescriptor checks that the mode of the opened file counts, also behind a link, and that its folder's
// does not.
func TestDisclosureOfDescriptor(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "secret"), filepath.Join(dir, "link")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("secret", link); err != nil {
		t.Fatal(err)
	}
	for mode, disclosed := range map[fs.FileMode]bool{0o600: false, 0o640: true, 0o644: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{path, link} {
			f, err := Open(name, true)
			if err != nil {
				t.Fatal(err)
			}
			if (f.Disclosure.How != "") != disclosed {
				t.Errorf("%s with mode %o: %+v", filepath.Base(name), mode, f.Disclosure)
			}
			_ = f.Close()
		}
	}
	null, err := Open(os.DevNull, true)
	if err != nil || null.Disclosure.How != "" {
		t.Errorf("%s: %+v, %v", os.DevNull, null, err)
	}
	_ = null.Close()
}
