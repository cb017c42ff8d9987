package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

func TestLoadStore(t *testing.T) {
	t.Setenv("LOGLEVEL", "info")
	t.Setenv("ELASTICRUN_LOG_FORMAT", "json")
	t.Setenv("ELASTICRUN_RDZV_SECRET_FILE", "")
	t.Setenv(SecretEnv, "")
	for _, name := range []string{"ELASTICRUN_RDZV_SECRET_FILE", SecretEnv} {
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("the store's own secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	defaults := Store{
		Listen: HostPort{"127.0.0.1", 29400}, MaxMemory: 2 << 30, StallTimeout: 30 * time.Second, Grace: 10 * time.Second,
		LogFormat: "json", LogLevel: zerolog.InfoLevel,
	}
	for _, tt := range []struct {
		args   string
		change func(*Store)
	}{
		{"", func(*Store) {}},
		{"--listen=:0", func(s *Store) { s.Listen = HostPort{"", 0} }},
		{"--listen [::1]:1", func(s *Store) { s.Listen = HostPort{"::1", 1} }},
		{"--listen head-node.example:65535", func(s *Store) { s.Listen = HostPort{"head-node.example", 65535} }},
		{"--health=:8080", func(s *Store) { s.Health = &HostPort{"", 8080} }},
		{"--listen=:0 --health=:0", func(s *Store) { s.Listen, s.Health = HostPort{}, &HostPort{} }},
		{"--max-conns=7 --max_memory 512MiB", func(s *Store) { s.MaxConns, s.MaxMemory = 7, 512<<20 }},
		{"--stall-timeout=0.5 --grace=0", func(s *Store) { s.StallTimeout, s.Grace = time.Second/2, 0 }},
		{"--data-dir=d", func(s *Store) { s.DataDir = "d" }},
		{"--rdzv-secret-file=" + secret, func(s *Store) { s.Secret = rdzvconf.NewSecret("the store's own secret") }},
		{"--log-level=debug --log-format=console --", func(s *Store) { s.LogLevel, s.LogFormat = zerolog.DebugLevel, "console" }},
	} {
		t.Run(tt.args, func(t *testing.T) {
			want := defaults
			tt.change(&want)
			got, err := LoadStore(strings.Fields(tt.args))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := LoadStore([]string{"-h"}); !errors.Is(err, ErrHelp) {
		t.Errorf("-h: %v, want ErrHelp", err)
	}
	if err := os.Chmod(secret, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadStore([]string{"--rdzv-secret-file=" + secret}); err == nil {
		t.Error("a secret for all to read was read")
	}
	t.Setenv(SecretEnv, "the secret itself")
	if c, err := LoadStore(nil); err != nil || c.Secret.Reveal() != "the secret itself" {
		t.Errorf("%s: %v, want the secret", SecretEnv, err)
	}
}
