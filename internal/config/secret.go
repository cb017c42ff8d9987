package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// SecretEnv is the variable that holds the agents' shared secret itself.
const SecretEnv = "PET_RDZV_SECRET"

// confEnv is the variable of --rdzv-conf.
const confEnv = "PET_RDZV_CONF"

// maxSecret is the size of the largest secret, in bytes. A larger file is not a secret.
const maxSecret = 64 << 10

// Secret is text that is not printed.
type Secret = rdzvconf.Secret

// readSecret reads a secret from a file. The warning, if any, says that other users can read the file.
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
		return Secret{}, "", fmt.Errorf("is larger than %d bytes, so it is no secret", maxSecret)
	}
	if secret, err = parseSecret(string(data)); err != nil {
		return Secret{}, "", err
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 {
		warning = "every user of this machine can read the file; chmod o-r protects the secret"
	}
	return secret, warning, nil
}

// parseSecret removes the newline at the end of a file, or of a variable that was made from a file.
func parseSecret(text string) (Secret, error) {
	text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	if text == "" {
		return Secret{}, errors.New("holds no secret: it is empty")
	}
	return rdzvconf.NewSecret(text), nil
}

// agentsSecret reads the secret of --rdzv-secret-file or PET_RDZV_SECRET. The environment overrides the config file,
// as for every setting.
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
	return read(r, name, func(path string) (Secret, error) {
		secret, warning, err := from.secret(path)
		if warning != "" {
			r.warn(name, warning)
		}
		return secret, err
	})
}

// WithoutSecrets returns an environment without the secrets of agents: PET_RDZV_SECRET, and PET_RDZV_CONF if it holds
// a password. It removes that variable as a whole, because a password may contain commas, and the text after a comma
// looks like another option.
func WithoutSecrets(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, value, _ := strings.Cut(kv, "=")
		return name == SecretEnv || name == confEnv && redactConf(value) != value
	})
}
