package config

import (
	"crypto/rand"
	"encoding/hex"
)

// secretSize is the size of a new secret in bytes.
const secretSize = 32

// DrawSecret returns a new random secret for the agents of a job, as hexadecimal digits.
func DrawSecret() string {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // never fails
	return hex.EncodeToString(secret)
}

// secretFlags returns the table of elasticrun secret.
func secretFlags() []Flag { return commandFlags("secret", inherit("help")) }

// LoadSecret checks the arguments of elasticrun secret, which takes none. Its errors are ErrHelp and *UsageError.
func LoadSecret(args []string) error {
	_, err := readFlagsOnly("secret", secretFlags(), args)
	return err
}

// secretCommand describes elasticrun secret.
func secretCommand() Subcommand {
	return Subcommand{
		Name: "secret", Short: "print a new secret for the agents of a job", Args: "> FILE", flags: secretFlags,
		Intro: `Print a new random secret of 32 bytes, as one line of 64 hexadecimal digits. Give it to all agents
of a job, and to the store if there is one, with --rdzv-secret-file FILE or in PET_RDZV_SECRET. They
then refuse everybody who does not have it.
`,
		Outro: `If stdout is a file, the command first makes it readable for its owner alone (mode 0600), which
--rdzv-secret-file requires. On Linux it refuses a file that another process has open, which may be
another user's; after umask 077 the shell makes a file that no other user can open.

Exit code: 0; 2 if there are arguments; 74 if the secret cannot be written, or not only for its
owner.
`,
	}
}
