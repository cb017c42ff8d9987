package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// SecretEnv is the variable that holds the agents' shared secret itself.
const SecretEnv = "PET_RDZV_SECRET"

// maxSecret is the largest secret, in bytes: what is larger is some other file.
const maxSecret = 64 << 10

// hidden stands for what is not shown.
const hidden = "(hidden)"

// Secret is text that is printed, logged and encoded as "(hidden)" only. The zero value is no secret.
type Secret struct{ text string }

// NewSecret returns text as a secret.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal returns the text; empty for no secret.
func (s Secret) Reveal() string { return s.text }

// Format implements [fmt.Formatter] for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.mask()) }

// MarshalText implements [encoding.TextMarshaler].
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.mask()), nil }

// Equal reports whether both are the same secret.
func (s Secret) Equal(other Secret) bool { return s == other }

func (s Secret) mask() string {
	if s.text == "" {
		return ""
	}
	return hidden
}

// readSecret reads a secret from a file. warning tells that others may read it too.
func readSecret(path string) (secret Secret, warning string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return Secret{}, "", errors.New("cannot be read: " + reason(err))
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return Secret{}, "", errors.New("cannot be read: " + reason(err))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	switch {
	case err != nil:
		return Secret{}, "", errors.New("cannot be read: " + reason(err))
	case len(data) > maxSecret:
		return Secret{}, "", fmt.Errorf("is larger than %d bytes, which no secret is", maxSecret)
	}
	if secret, err = parseSecret(string(data)); err != nil {
		return Secret{}, "", err
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 {
		warning = "every user of this machine may read the file: chmod o-r keeps the secret"
	}
	return secret, warning, nil
}

// parseSecret takes off the newline that files and variables made from them end with.
func parseSecret(text string) (Secret, error) {
	text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	if text == "" {
		return Secret{}, errors.New("holds no secret: it is empty")
	}
	return Secret{text}, nil
}

// agentsSecret reads the secret of --rdzv-secret-file or PET_RDZV_SECRET. As elsewhere the environment goes before
// the config file.
func agentsSecret(r *reader, from surroundings) Secret {
	const name = "rdzv-secret-file"
	text, set := from.env(SecretEnv)
	s := r.settings[name]
	if !s.Given() || set && s.Source.Kind == FromFile {
		if !set {
			return Secret{}
		}
		secret, err := parseSecret(text)
		if err != nil && r.err == nil {
			r.err = &UsageError{Where: SecretEnv, Problem: err.Error() + "; unset it to have none"}
		}
		return secret
	}
	return readSecretSetting(r, name, from)
}

// readSecretSetting reads the file that a setting names.
func readSecretSetting(r *reader, name string, from surroundings) Secret {
	return read(r, name, func(path string) (Secret, error) {
		secret, warning, err := from.secret(path)
		if warning != "" {
			r.warn(name, warning)
		}
		return secret, err
	})
}

// WithoutSecrets returns an environment without what only agents may know: the shared secret, and a PET_RDZV_CONF that holds a
// password. That variable goes as a whole, since a password may hold commas, and what is behind them looks like options.
func WithoutSecrets(env []string) []string {
	conf, _ := findFlag(Flags(), "rdzv-conf")
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, value, _ := strings.Cut(kv, "=")
		return name == SecretEnv || slices.Contains(conf.Env, name) && redactConf(value) != value
	})
}
