package config

import (
	"slices"
	"strings"
)

// Completion is what may stand at the cursor of a shell.
type Completion struct {
	// Words are the candidates; each begins with the text before the cursor.
	Words []CompletionWord
	// Files asks the shell for names of files, Dirs for names of folders only.
	Files, Dirs bool
}

// CompletionWord is a word and its description, which may be empty.
type CompletionWord struct{ Word, Help string }

// Complete completes a command line. Args are the words after the program's name up to the cursor. The last one,
// which may be empty, is the word at the cursor. For --flag=value it completes only the value.
func Complete(args []string) Completion {
	if len(args) == 0 {
		args = []string{""}
	}
	for _, s := range Subcommands() {
		if len(args) > 1 && args[0] == s.Name {
			flags := s.Flags()
			if s.Launch {
				flags = slices.Concat(flags, Flags())
			}
			return completer{argParser{flags: flags}, s.Operands, s.Launch}.complete(args[1:])
		}
	}
	c := completer{parser: argParser{flags: Flags()}, runs: true}
	if len(args) == 1 { // a command is one only there
		for _, s := range Subcommands() {
			c.operands = append(c.operands, s.Name)
		}
	}
	return c.complete(args)
}

// completer completes the words of one command.
type completer struct {
	parser   argParser
	operands []string
	runs     bool // the first operand is a script, and the flags after it are the script's own
}

func (c completer) complete(args []string) Completion {
	before, word := args[:len(args)-1], args[len(args)-1]
	for i := 0; i < len(before); i++ {
		if before[i] == "--" || !c.parser.isOption(before[i]) {
			if c.runs {
				return Completion{Files: true}
			}
			continue
		}
		flag, wanted := c.parser.wants(before[i])
		switch {
		case !wanted:
		case i+1 == len(before) && !c.parser.isOption(word):
			return flag.complete(word)
		case i+1 < len(before) && before[i+1] != "--" && !c.parser.isOption(before[i+1]):
			i++
		}
	}
	name, value, joined := strings.Cut(word, "=")
	switch {
	case joined && strings.HasPrefix(name, "-"):
		if flag, wanted := c.parser.wants(name); wanted {
			return flag.complete(value)
		}
		return Completion{}
	case strings.HasPrefix(word, "-"):
		return Completion{Words: c.names(word)}
	}
	words := beginWith(word, c.operands)
	return Completion{Words: words, Files: c.runs && (word == "" || len(words) == 0)}
}

// names returns the flags that begin with a word, in the word's spelling.
func (c completer) names(word string) []CompletionWord {
	var words []CompletionWord
	for _, f := range c.parser.flags {
		long := "--" + f.Name
		if strings.Contains(word, "_") {
			long = "--" + f.Underscored()
		}
		help, _, _ := strings.Cut(f.Help, ". ")
		help = strings.TrimSuffix(help, ".")
		if f.Short != "" && word == "-" {
			words = append(words, CompletionWord{"-" + f.Short, help})
		}
		if strings.HasPrefix(long, word) {
			words = append(words, CompletionWord{long, help})
		}
	}
	return words
}

// wants returns the flag whose value must follow an option, and whether there is one.
func (p *argParser) wants(arg string) (Flag, bool) {
	if long, ok := strings.CutPrefix(arg, "--"); ok {
		flag, err := p.long(long) // fails for --name=value
		return flag, err == nil && flag.takesValue()
	}
	for i := 1; i < len(arg); i++ {
		flag, known := p.short(arg[i])
		if !known || flag.takesValue() {
			return flag, known && i == len(arg)-1
		}
	}
	return Flag{}, false
}

// complete completes the flag's value.
func (f Flag) complete(begun string) Completion {
	return Completion{Words: beginWith(begun, f.Values), Files: f.Placeholder == "FILE", Dirs: f.Placeholder == "DIR"}
}

func beginWith(begun string, all []string) []CompletionWord {
	var words []CompletionWord
	for _, word := range all {
		if strings.HasPrefix(word, begun) {
			words = append(words, CompletionWord{Word: word})
		}
	}
	return words
}
