package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// printed returns v as fmt and encoding/json print it.
func printed(t *testing.T, v any) (text, encoded string) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%v %+v %#v %s %q %x %d", v, v, v, v, v, v, v), string(data)
}

func TestSecretIsNotShown(t *testing.T) {
	s := rdzvconf.NewSecret("hush")
	for _, v := range []any{s, &s, struct{ S Secret }{s}, []Secret{s}, map[string]Secret{"k": s}} {
		text, encoded := printed(t, v)
		for _, bad := range []string{"hush", fmt.Sprintf("%x", "hush")} {
			if strings.Contains(text+encoded, bad) {
				t.Errorf("%T shows it: %s %s", v, text, encoded)
			}
		}
	}
	if s.Reveal() != "hush" || fmt.Sprint(s) != rdzvconf.Hidden || fmt.Sprint(Secret{}) != "" {
		t.Errorf("%q is shown as %v, none as %v", s.Reveal(), s, Secret{})
	}
}

func TestReadSecret(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]string{
		"s": "s", "s\n": "s", "s\r\n": "s", "s\n\n": "s\n", " s ": " s ", "a\nb": "a\nb",
		strings.Repeat("x", maxSecret): strings.Repeat("x", maxSecret),
	} {
		path := filepath.Join(dir, "secret")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, warning, err := readSecret(path); err != nil || warning != "" || got.Reveal() != want {
			t.Errorf("%.10q: got %.10q, %q, %v, want %.10q", content, got.Reveal(), warning, err, want)
		}
	}
	for mode, warns := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o604: true, 0o644: true} {
		path := filepath.Join(dir, fmt.Sprintf("mode%o", mode))
		if err := os.WriteFile(path, []byte("s"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, warning, err := readSecret(path); err != nil || (warning != "") != warns {
			t.Errorf("mode %o: warning %q, %v", mode, warning, err)
		}
	}
}

// TestSecretPrecedence checks that a flag overrides the environment, which overrides the config file, although there
// are two variables.
func TestSecretPrecedence(t *testing.T) {
	tests := []struct{ name, line, env, file, want string }{
		{"none", "s.py", "", "", ""},
		{"flag", "--rdzv-secret-file=f s.py", "", "", "of the file"},
		{"its variable", "s.py", "ELASTICRUN_RDZV_SECRET_FILE=f", "", "of the file"},
		{"config file", "s.py", "", "rdzv-secret-file: f", "of the file"},
		{"the secret itself", "s.py", "PET_RDZV_SECRET=itself", "", "itself"},
		{"flag beats the secret itself", "--rdzv-secret-file=f s.py", "PET_RDZV_SECRET=itself", "", "of the file"},
		{
			"variable beats the secret itself",
			"s.py",
			"PET_RDZV_SECRET=itself ELASTICRUN_RDZV_SECRET_FILE=f",
			"",
			"of the file",
		},
		{"the secret itself beats the config file", "s.py", "PET_RDZV_SECRET=itself", "rdzv-secret-file: f", "itself"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clean(t)
			write(t, "f", "of the file\n")
			setEnv(t, strings.Fields(tt.env)...)
			if tt.file != "" {
				write(t, "elasticrun.yaml", tt.file)
			}
			c, err := load(tt.line)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Rendezvous.Secret.Reveal(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			warned := strings.Contains(strings.Join(c.Warnings, " "), "every user of this machine can read")
			if warned != (tt.want == "of the file") {
				t.Errorf("warnings %q: the file is for all to read", c.Warnings)
			}
		})
	}
}

func TestWithoutSecrets(t *testing.T) {
	env := []string{
		"HOME=/h", "PET_RDZV_SECRET=s", "PET_RDZV_CONF=timeout=5,user=u,password=hush,ca_cert=x", "PET_RDZV_CONF=Passwd =hush", "PET_RDZV_SECRET=",
		"PET_RDZV_CONF=timeout=5,password_file=/p", "ELASTICRUN_RDZV_SECRET_FILE=/f", "PASSWORD=mine", "PET_RDZV_SECRETS=x",
	}
	want := []string{
		"HOME=/h",
		"PET_RDZV_CONF=timeout=5,password_file=/p",
		"ELASTICRUN_RDZV_SECRET_FILE=/f",
		"PASSWORD=mine",
		"PET_RDZV_SECRETS=x",
	}
	if conf, _ := findFlag(Flags(), "rdzv-conf"); len(conf.Env) != 1 || conf.Env[0] != confEnv {
		t.Errorf("the variables of --rdzv-conf are %q", conf.Env)
	}
	if diff := cmp.Diff(want, WithoutSecrets(env)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
