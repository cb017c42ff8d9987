package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestSecretMounts puts a secret where the kubelet and systemd put it for a user who is not root, and at places that
// only look similar.
func TestSecretMounts(t *testing.T) {
	t.Parallel()
	testenv.Root(t) // to mount
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // the test's own, and everybody must get in
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyProgram(t, testBinary(t), filepath.Join(dir, "elasticrun"), 0o755)
	const (
		// The kubelet makes a folder for each version of a Secret, and links to the current one.
		kubelet = `mount -t tmpfs tmpfs volume && chmod 3777 volume && mkdir volume/..2026 &&
			echo "the secret of these pods" >volume/..2026/secret && chgrp -R 65534 volume &&
			chmod 0440 volume/..2026/secret && ln -s ..2026 volume/..data && ln -s ..data/secret volume/secret`
		systemd = `mount -t ramfs ramfs volume && echo "the secret of a service" >volume/secret &&
			chgrp 65534 volume/secret && chmod 0440 volume/secret && chmod 0755 volume`
		disk     = `echo "the secret of a disk" >volume/secret && chgrp 65534 volume/secret && chmod 0440 volume/secret`
		readOnly = ` && mount --bind volume volume && mount -o remount,bind,ro volume`
		user     = ` && exec setpriv --reuid=65534 --regid=65534 --clear-groups ../elasticrun`
	)
	for _, tt := range []struct{ name, script, refused string }{
		{name: "a Secret of Kubernetes", script: kubelet + readOnly + user},
		{name: "a credential of systemd", script: systemd + readOnly + user},
		{name: "a Secret that can be written", script: kubelet + user, refused: "(mode 0440): use a file of your own"},
		{name: "a read-only disk", script: disk + readOnly + user, refused: "(mode 0440): use a file of your own"},
		{name: "root's own", script: `umask 077; echo "the secret of root" >volume/secret; exec ../elasticrun`},
		{
			name:    "another user's, for root",
			script:  `umask 077; echo "the secret of nobody" >volume/secret; chown 65534 volume/secret; exec ../elasticrun`,
			refused: "it belongs to uid 65534, not to root, who runs this: chown 0 volume/secret",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			work := filepath.Join(dir, strings.ReplaceAll(tt.name, " ", "-"))
			if err := os.MkdirAll(filepath.Join(work, "volume"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(work, 0o777); err != nil { // for temporary files
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c",
				tt.script+` explain --nnodes=2 --rdzv-endpoint=127.0.0.1:1 --rdzv-secret-file=volume/secret --no-python true`)
			cmd.Dir, cmd.Env = work, append(os.Environ(), "TMPDIR="+work, "HOME="+work)
			out, err := cmd.CombinedOutput()
			want := "agents with the secret of --rdzv-secret-file=volume/secret"
			if tt.refused != "" {
				want = tt.refused
			}
			if (err == nil) != (tt.refused == "") || !strings.Contains(string(out), want) {
				t.Errorf("%v, want %q:\n%s", err, want, out)
			}
		})
	}
}
