package config

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/config/safefile"
	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// SecretEnv is the variable that holds the agents' shared secret itself.
const SecretEnv = "PET_RDZV_SECRET"

// SecretVariables returns the variables by which agents get their secret, or a file with it.
func SecretVariables() []string { return []string{SecretEnv, "ELASTICRUN_RDZV_SECRET_FILE"} }

// confEnv is the variable of --rdzv-conf.
const confEnv = "PET_RDZV_CONF"

// Bounds of a secret, in bytes. A larger file is not a secret. A store proves to each client that it knows the secret,
// so a client could try all short secrets against that proof without asking the store again.
const (
	maxSecret      = 64 << 10
	minSecret      = 16
	minSecretBytes = 4 // different ones
)

// Secret is text that is not printed.
type Secret = rdzvconf.Secret

// readSecret reads a file that holds a secret. It refuses a file that other users than this one and root may read.
func readSecret(path string) (Secret, error) {
	f, err := safefile.Open(path, true)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Secret{}, fmt.Errorf("cannot be read: %w", syscall.ENOENT)
	case err != nil:
		return Secret{}, errors.New("cannot be read: " + reason(err))
	}
	defer func() { _ = f.Close() }()
	if d := f.Disclosure; d.How != "" {
		return Secret{}, fmt.Errorf("is not secret: %s: %s", d.How, d.Remedy)
	}
	data, err := f.ReadAll(maxSecret, fifoTimeout)
	switch {
	case errors.Is(err, safefile.ErrTooLarge):
		return Secret{}, fmt.Errorf("is larger than %d bytes, so it is no secret", maxSecret)
	case err != nil:
		return Secret{}, errors.New("cannot be read: " + reason(err))
	}
	return parseSecret(string(data))
}

// parseSecret removes the newline at the end of a file, or of a variable that was made from a file.
func parseSecret(text string) (Secret, error) {
	text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	if text == "" {
		return Secret{}, errors.New("holds no secret: it is empty")
	}
	return rdzvconf.NewSecret(text), nil
}

// checkStrength refuses a secret of the agents that can be guessed. Passwords that another service checks, such as
// etcd's, are that service's concern.
func checkStrength(s Secret) error {
	text := s.Reveal()
	different := map[byte]bool{}
	for i := range len(text) {
		different[text[i]] = true
	}
	const instead = "elasticrun secret > FILE makes a good one"
	switch {
	case len(text) < minSecret:
		return fmt.Errorf("the secret has %s, so it can be guessed; it needs at least %d: %s",
			plural.Of(len(text), "byte"), minSecret, instead)
	case len(different) < minSecretBytes:
		return fmt.Errorf("the secret repeats %s, so it can be guessed: %s", plural.Of(len(different), "byte"), instead)
	}
	return nil
}

// agentsSecret reads the secret of --rdzv-secret-file or PET_RDZV_SECRET. The environment overrides the config file,
// as for every setting. The source names the setting; it is empty without a secret.
func agentsSecret(r *reader, from surroundings) (secret Secret, source string) {
	const name = "rdzv-secret-file"
	text, set := from.env(SecretEnv)
	s := r.settings[name]
	if !s.Given() || set && s.Source.Kind == FromFile {
		if !set {
			return Secret{}, ""
		}
		secret, err := parseSecret(text)
		problem := "; unset it to have none"
		if err == nil {
			err, problem = checkStrength(secret), ""
		}
		if err != nil && r.err == nil {
			r.err = &UsageError{Where: SecretEnv, Problem: err.Error() + problem}
		}
		return secret, SecretEnv
	}
	secret = read(r, name, func(path string) (Secret, error) {
		secret, err := from.secret(path)
		switch {
		case err == nil:
			err = checkStrength(secret)
		case errors.Is(err, fs.ErrNotExist):
			err = fmt.Errorf("%w; elasticrun secret > FILE makes one, for all nodes", err)
		}
		return secret, err
	})
	return secret, s.Where()
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
