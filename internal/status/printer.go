package status

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/logging"
)

// Printer prints the status of a job. One goroutine may use it.
type Printer struct {
	cfg   *config.Status
	out   io.Writer
	notes io.Writer
	// size returns the terminal's columns and rows; nil if out is no terminal.
	size  func() (width, height int)
	shown bool
}

// NewPrinter returns a Printer that writes statuses to stdout and other lines to notes. With --watch a terminal shows
// only the latest status; any other stdout gets one status after the other.
func NewPrinter(cfg *config.Status, stdout, notes io.Writer) *Printer {
	p := &Printer{cfg: cfg, out: stdout, notes: notes}
	if f, ok := stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.size = func() (int, int) {
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil {
				return 0, 0
			}
			return width, height
		}
	}
	return p
}

// clearScreen moves the cursor to the corner of a terminal and clears it.
const clearScreen = "\x1b[H\x1b[2J"

// Show prints the status of a job.
func (p *Printer) Show(j Job) error {
	text, err := p.format(j)
	if err != nil {
		return err
	}
	p.shown = true
	_, err = io.WriteString(p.out, text)
	return err
}

func (p *Printer) format(j Job) (string, error) {
	switch {
	case p.cfg.JSON && p.cfg.Watch:
		data, err := json.Marshal(j)
		return string(logging.JSON(data)) + "\n", err
	case p.cfg.JSON:
		data, err := json.MarshalIndent(j, "", "  ")
		return string(logging.JSON(data)) + "\n", err
	case p.cfg.Watch && p.size != nil:
		return clearScreen + fit(j.Text(), p.size), nil
	case p.shown:
		return "\n" + j.Text(), nil
	}
	return j.Text(), nil
}

// Note prints a line that is not a status.
func (p *Printer) Note(format string, args ...any) {
	_, _ = fmt.Fprintf(p.notes, "elasticrun: "+format+"\n", args...) // the user's terminal may have gone
}

// fit cuts a text to the size of a terminal, with a row left for the cursor: a line that wraps, or a text that scrolls,
// would move the top of the text out of sight. A size of 0 is unknown.
func fit(text string, size func() (width, height int)) string {
	width, height := size()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if keep := height - 2; keep > 0 && len(lines) > keep+1 {
		lines = append(lines[:keep:keep], fmt.Sprintf("… %d more lines", len(lines)-keep))
	}
	for i, line := range lines {
		if width > 0 {
			lines[i] = cutColumns(line, width)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// cutColumns cuts a line to a width in columns.
func cutColumns(line string, width int) string {
	column, cut := 0, 0 // cut leaves room for the "…"
	for i, r := range line {
		if column <= width-1 {
			cut = i
		}
		if column += columns(r); column > width {
			return line[:cut] + "…"
		}
	}
	return line
}

// columns returns how many columns of a terminal a character takes: two if it is from a script or a set of symbols that
// terminals show wide (Unicode Standard Annex #11).
func columns(r rune) int {
	switch {
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff,
		r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff,
		r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}
