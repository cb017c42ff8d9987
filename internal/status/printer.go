package status

import (
	"encoding/json"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/logging"
)

// NewPrinter returns a function that prints a Job. On a terminal --watch shows only the latest, elsewhere one after the
// other.
func NewPrinter(cfg *config.Status, stdout io.Writer) func(Job) error {
	separator := "\n"
	if f, ok := stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		separator = "\x1b[H\x1b[2J"
	}
	shown := false
	return func(j Job) error {
		var text []byte
		var err error
		switch {
		case cfg.JSON && cfg.Watch:
			text, err = json.Marshal(j)
		case cfg.JSON:
			text, err = json.MarshalIndent(j, "", "  ")
		case shown || separator != "\n" && cfg.Watch:
			text = []byte(separator + j.Text())
		default:
			text = []byte(j.Text())
		}
		if err != nil {
			return err
		}
		if cfg.JSON {
			text = append(logging.JSON(text), '\n')
		}
		shown = true
		_, err = stdout.Write(text)
		return err
	}
}
