package certfiles

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestFilesRefused opens unusable files. Each error names the file and says what to do.
func TestFilesRefused(t *testing.T) {
	t.Parallel()
	ours := testenv.NewAuthority(t, "ours")
	cert, key := ours.Issue(t, "node")
	_, otherKey := ours.Issue(t, "other")
	at := func(name string) string { return filepath.Join(t.TempDir(), name) }
	expired, expiredKey := at("old.pem"), at("key.pem")
	ours.IssueAt(t, expired, expiredKey, "old", func(c *x509.Certificate) {
		c.NotAfter = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		c.NotBefore = c.NotAfter.Add(-time.Hour)
	})
	early, earlyKey := at("early.pem"), at("key.pem")
	ours.IssueAt(t, early, earlyKey, "early", func(c *x509.Certificate) {
		c.NotBefore = time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)
		c.NotAfter = c.NotBefore.Add(time.Hour)
	})
	text := at("text.pem")
	if err := os.WriteFile(text, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	encrypted, older := at("encrypted.pem"), at("older.pem")
	for path, block := range map[string]*pem.Block{
		encrypted: {Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte{1}},
		older:     {Type: "EC PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED"}, Bytes: []byte{1}},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gone, shown := at("gone.pem"), at("shown.pem")
	keyText, err := os.ReadFile(key)
	if err := errors.Join(err, os.WriteFile(shown, keyText, 0o600), os.Chmod(shown, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		files Files
		want  string
	}{
		{"right", Files{cert, key, ours.File}, ""},
		{"certificate alone", Files{Cert: cert}, "certificate " + cert + `, key "": give both or neither`},
		{"no file", Files{gone, key, ""}, "the certificate " + gone + " cannot be read: there is no such file"},
		{"no key", Files{cert, gone, ""}, "the key " + gone + " cannot be read: there is no such file"},
		{"no CA", Files{CA: gone}, "the CA " + gone + " cannot be read: there is no such file"},
		{"a folder", Files{CA: t.TempDir()}, "cannot be read: "},
		{"other key", Files{cert, otherKey, ""}, "the key " + otherKey + " does not belong to the certificate " + cert},
		{"key without PEM", Files{cert, text, ""}, "the key " + text + " holds no key in PEM form"},
		{"encrypted key", Files{cert, encrypted, ""}, "the key " + encrypted + " needs a passphrase"},
		{"encrypted key of older form", Files{cert, older, ""}, "openssl pkey -in " + older + " -out FILE writes"},
		{"key that others can read", Files{cert, shown, ""}, "the key " + shown + " is no secret: others than its owner may " +
			"read or change it (mode 0644): chmod 600 " + shown},
		{"certificate without PEM", Files{text, key, ""}, "the certificate " + text + " and the key " + key + ": "},
		{"CA without PEM", Files{CA: text}, "the CA " + text + " holds no certificate in PEM form"},
		{
			"expired",
			Files{expired, expiredKey, ""},
			"the certificate " + expired + " expired at 2026-01-02T03:04:05Z: issue a new one",
		},
		{
			"not yet valid",
			Files{early, earlyKey, ""},
			"the certificate " + early + " is not valid before 2100-01-02T03:04:05Z: check this machine's clock",
		},
		{"expired CA", Files{CA: expired}, "the CA " + expired + " expired at 2026-01-02T03:04:05Z: issue a new one"},
	} {
		_, err := Open(tc.files, zerolog.Nop())
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}

// TestReload replaces the files of a set, in steps and by one symbolic link. It also breaks and repairs them.
func TestReload(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	ours, dir := testenv.NewAuthority(t, "ours"), t.TempDir()
	issue := func(version string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		ours.IssueAt(t, filepath.Join(dir, version, "cert"), filepath.Join(dir, version, "key"), version,
			func(*x509.Certificate) {})
	}
	link := func(version string) { // as the kubelet does
		t.Helper()
		next := filepath.Join(dir, "next")
		if err := os.Symlink(version, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, "now")); err != nil {
			t.Fatal(err)
		}
	}
	issue("v1")
	link("v1")
	files := Files{filepath.Join(dir, "now", "cert"), filepath.Join(dir, "now", "key"), ours.File}
	s, err := Open(files, zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	inUse := func(want, wantLog string) {
		t.Helper()
		for range 2 { // each change is logged only once
			if got := s.Content().Pair.Leaf.Subject.CommonName; got != want {
				t.Errorf("the certificate in use is %s, want %s", got, want)
			}
		}
		if got := log.String(); strings.Count(got, "\n") > 1 || !strings.Contains(got, wantLog) || wantLog == "" && got != "" {
			t.Errorf("logged %q, want %q", got, wantLog)
		}
		log.Reset()
	}
	inUse("v1", "")
	issue("v2")
	inUse("v1", "")
	link("v2")
	inUse("v2", "the new ones are in use")
	for _, step := range []struct{ remove, want string }{{"cert", "cannot be read"}, {"key", ""}} {
		if err := os.Remove(filepath.Join(dir, "v2", step.remove)); err != nil {
			t.Fatal(err)
		}
		inUse("v2", step.want)
	}
	issue("v2")
	inUse("v2", "the new ones are in use")
	issue("v3")
	if err := os.Rename(filepath.Join(dir, "v3", "cert"), filepath.Join(dir, "v2", "cert")); err != nil {
		t.Fatal(err)
	}
	inUse("v2", "does not belong to the certificate")
	if err := os.Rename(filepath.Join(dir, "v3", "key"), filepath.Join(dir, "v2", "key")); err != nil {
		t.Fatal(err)
	}
	inUse("v3", "the new ones are in use")
}
