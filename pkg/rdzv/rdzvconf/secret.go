package rdzvconf

import (
	"fmt"
	"io"
)

// Hidden replaces secrets in everything that is printed.
const Hidden = "(hidden)"

// Secret is text that fmt, loggers and encoders print as "(hidden)". The zero value is no secret.
type Secret struct{ text string }

// NewSecret returns text as a secret.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal returns the text, which is empty for no secret.
func (s Secret) Reveal() string { return s.text }

// Format implements [fmt.Formatter] for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.mask()) }

// MarshalText implements [encoding.TextMarshaler].
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.mask()), nil }

// Equal reports whether s and other are the same secret.
func (s Secret) Equal(other Secret) bool { return s == other }

func (s Secret) mask() string {
	if s.text == "" {
		return ""
	}
	return Hidden
}
