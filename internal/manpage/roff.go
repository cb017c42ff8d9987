package manpage

import (
	"fmt"
	"strings"
)

// page builds a manual page with the macros of man(7).
type page struct{ strings.Builder }

// newPage starts a page of section 1. The date is YYYY-MM-DD.
func newPage(name, date, version string) *page {
	p := &page{}
	p.macro("TH", strings.ToUpper(name), "1", date, "elasticrun "+version, "User Commands")
	p.WriteString(".nh\n.ad l\n") // no hyphenation and no justification
	return p
}

// macro writes a macro with its arguments.
func (p *page) macro(name string, args ...string) {
	p.WriteString("." + name)
	for _, a := range args {
		p.WriteString(` "` + strings.ReplaceAll(escape(a), `"`, `\(dq`) + `"`)
	}
	p.WriteString("\n")
}

func (p *page) section(title string) { p.macro("SH", title) }

// text writes a paragraph. Text in backquotes becomes bold.
func (p *page) text(text string) {
	p.macro("PP")
	p.flow(text)
}

// entry writes a term, which must be roff already, and its description.
func (p *page) entry(term, text string) {
	p.macro("TP")
	p.WriteString(term + "\n")
	p.flow(text)
}

// flow writes running text. Text in backquotes becomes bold, and links lose their targets.
func (p *page) flow(text string) {
	for i, part := range strings.Split(strings.Join(strings.Fields(withoutLinks(text)), " "), "`") {
		if i%2 == 1 {
			p.WriteString(bold(part))
			continue
		}
		p.WriteString(escape(part))
	}
	p.WriteString("\n")
}

// block writes lines verbatim.
func (p *page) block(lines string) {
	p.macro("PP")
	p.WriteString(".nf\n")
	p.macro("RS", "2n")
	for line := range strings.Lines(lines) {
		p.WriteString(escape(strings.TrimSpace(line)) + "\n")
	}
	p.macro("RE")
	p.WriteString(".fi\n")
}

func bold(s string) string   { return `\fB` + escape(s) + `\fR` }
func italic(s string) string { return `\fI` + escape(s) + `\fR` }

// escape turns plain text into roff, so that no character acts as a command. Dashes and quotes stay as they are when a
// reader copies them from the page.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

// references writes the section SEE ALSO.
func (p *page) references(names []string) {
	p.section("SEE ALSO")
	for i, name := range names {
		end := "(1),"
		if i == len(names)-1 {
			end = "(1)"
		}
		fmt.Fprintf(p, ".BR %s %s\n", escape(name), end)
	}
}

// withoutLinks replaces links of Markdown, [text](target), by their text.
func withoutLinks(text string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "](")
		_, after, closed := strings.Cut(rest, ")")
		open := strings.LastIndex(before, "[")
		if !found || !closed || open < 0 {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(before[:open] + before[open+1:])
		text = after
	}
}
