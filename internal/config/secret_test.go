package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	path := filepath.Join(dir, "secret")
	for content, want := range map[string]string{
		"s": "s", "s\n": "s", "s\r\n": "s", "s\n\n": "s\n", " s ": " s ", "a\nb": "a\nb", "\x00\xff\n": "\x00\xff",
		strings.Repeat("x", maxSecret): strings.Repeat("x", maxSecret),
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readSecret(path); err != nil || got.Reveal() != want {
			t.Errorf("%.10q: got %.10q, %v, want %.10q", content, got.Reveal(), err, want)
		}
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error)
	go func() { wrote <- os.WriteFile(fifo, []byte("through a pipe\n"), 0) }()
	if got, err := readSecret(fifo); err != nil || got.Reveal() != "through a pipe" {
		t.Errorf("a FIFO: got %q, %v", got.Reveal(), err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	for content, want := range map[string]string{
		"": "holds no secret: it is empty", "\r\n": "holds no secret: it is empty",
		strings.Repeat("x", maxSecret+1): "is larger than 65536 bytes, so it is no secret",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readSecret(path); err == nil || err.Error() != want {
			t.Errorf("%.10q: got %v, want %s", content, err, want)
		}
	}
	chmod(t, path, 0o640)
	const others = "is not secret: others than its owner may read or change it (mode 0640): chmod 600 "
	if _, err := readSecret(path); err == nil || err.Error() != others+path {
		t.Errorf("got %v, want %s", err, others+path)
	}
}

func TestCheckStrength(t *testing.T) {
	const short, repeated = "so it can be guessed; it needs at least 16", "repeats"
	for text, want := range map[string]string{
		"a":                "the secret has 1 byte, " + short,
		"0123456789abcde":  "the secret has 15 bytes, " + short,
		"0123456789abcdef": "",
		"\x00\x01\x02\x03\xff\xfe\xfd\xfc\n\n\n\n\n\n\n\n": "",
		strings.Repeat("a", 99):                            "the secret " + repeated + " 1 byte, ",
		strings.Repeat("ab", 8):                            "the secret " + repeated + " 2 bytes, ",
		strings.Repeat("abc", 30):                          "the secret " + repeated + " 3 bytes, ",
		strings.Repeat("abcd", 4):                          "",
		strings.Repeat("é", 16):                            "the secret " + repeated + " 2 bytes, ",
	} {
		err := checkStrength(rdzvconf.NewSecret(text))
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// FuzzSecret checks that a secret is accepted with and without a newline at its end, and that no error shows it.
func FuzzSecret(f *testing.F) {
	for _, seed := range []string{"", "\n", "short", "a secret that is long enough", strings.Repeat("ab", 50)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		secret, err := parseSecret(text)
		if err == nil {
			err = checkStrength(secret)
		}
		if err != nil {
			if len(text) > 9 && strings.Contains(err.Error(), text) {
				t.Errorf("%q: the error shows it: %v", text, err)
			}
			return
		}
		if !strings.HasSuffix(text, "\n") && !strings.HasSuffix(text, "\r") {
			if again, err := parseSecret(text + "\n"); err != nil || !again.Equal(secret) {
				t.Errorf("%q: another secret with a newline: %v", text, err)
			}
		}
		if len(text) < minSecret {
			t.Errorf("%q was accepted", text)
		}
	})
}

// TestSecretPrecedence checks that a flag overrides the environment, which overrides the config file, although there
// are two variables.
func TestSecretPrecedence(t *testing.T) {
	tests := []struct{ name, line, env, file, want string }{
		{"none", "s.py", "", "", ""},
		{"flag", "--rdzv-secret-file=f s.py", "", "", "the secret of a file"},
		{"its variable", "s.py", "ELASTICRUN_RDZV_SECRET_FILE=f", "", "the secret of a file"},
		{"config file", "s.py", "", "rdzv-secret-file: f", "the secret of a file"},
		{"the secret itself", "s.py", "PET_RDZV_SECRET=the-secret-itself", "", "the-secret-itself"},
		{"flag beats the secret itself", "--rdzv-secret-file=f s.py", "PET_RDZV_SECRET=the-secret-itself", "", "the secret of a file"},
		{
			"variable beats the secret itself",
			"s.py",
			"PET_RDZV_SECRET=the-secret-itself ELASTICRUN_RDZV_SECRET_FILE=f",
			"",
			"the secret of a file",
		},
		{"the secret itself beats the config file", "s.py", "PET_RDZV_SECRET=the-secret-itself", "rdzv-secret-file: f", "the-secret-itself"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clean(t)
			write(t, "f", "the secret of a file\n")
			chmod(t, "f", 0o600)
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
		})
	}
}

// TestRefusedSecrets checks that an error names the true source of a secret.
func TestRefusedSecrets(t *testing.T) {
	for _, tt := range []struct{ line, env, file, want string }{
		{line: "s.py", env: "PET_RDZV_SECRET=", want: "PET_RDZV_SECRET: holds no secret: it is empty; unset it to have none"},
		{
			line: "s.py",
			env:  "ELASTICRUN_RDZV_SECRET_FILE=gone",
			want: "ELASTICRUN_RDZV_SECRET_FILE=gone: cannot be read: no such file or directory; " +
				"elasticrun secret > FILE makes one, for all nodes",
		},
		{line: "--rdzv-secret-file=. s.py", want: "--rdzv-secret-file=.: cannot be read: is a directory"},
		{
			line: "--rdzv-secret-file=elasticrun.yaml s.py",
			file: "\r\n",
			want: "--rdzv-secret-file=elasticrun.yaml: is not secret: others than its owner may read or change it (mode 0644): " +
				"chmod 600 elasticrun.yaml",
		},
		{
			line: "--rdzv-secret-file=/dev/null s.py",
			want: "--rdzv-secret-file=/dev/null: holds no secret: it is empty",
		},
		{
			line: "s.py", env: "PET_RDZV_SECRET=123456789012345",
			want: "PET_RDZV_SECRET: the secret has 15 bytes, so it can be guessed; it needs at least 16: elasticrun secret > FILE makes a good one",
		},
		{
			line: "s.py", env: "PET_RDZV_SECRET=aaaaaaaaaaaaaaaaaaaaaa",
			want: "PET_RDZV_SECRET: the secret repeats 1 byte, so it can be guessed: elasticrun secret > FILE makes a good one",
		},
		{
			line: "--rdzv-backend=etcd --rdzv-id=a --rdzv-conf=user=u,password=hush s.py",
			want: "--rdzv-conf=user=u,password=(hidden): every user of this machine can read a command line: " +
				"put the password into a file, password_file=FILE, or the whole option into PET_RDZV_CONF",
		},
		{
			line: "--rdzv-secret-file=/dev/zero s.py",
			want: "--rdzv-secret-file=/dev/zero: cannot be read: it is a device, not a regular file",
		},
	} {
		t.Run(tt.line+" "+tt.env, func(t *testing.T) {
			clean(t)
			setEnv(t, strings.Fields(tt.env)...)
			if tt.file != "" {
				write(t, "elasticrun.yaml", tt.file)
			}
			if _, err := load(tt.line); err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
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
