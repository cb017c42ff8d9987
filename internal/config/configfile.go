package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/viper"

	"github.com/elasticrun/elasticrun/internal/config/safefile"
	"github.com/elasticrun/elasticrun/internal/nearest"
	"github.com/elasticrun/elasticrun/internal/printable"
)

// configFileName is the name of the config file in the working directory and, below elasticrun/, in the user's config
// folder ([os.UserConfigDir]).
const configFileName = "elasticrun.yaml"

// maxConfigFile is the size of the largest config file, in bytes.
const maxConfigFile = 1 << 20

// fifoTimeout limits how long a FIFO that a flag names may take to deliver its file.
const fifoTimeout = 30 * time.Second

// configFile is a config file that was read. The zero value is none.
type configFile struct {
	path     string // as the user wrote it, for messages
	named    bool   // by --config or its variable
	exposure safefile.Exposure
	values   map[string]any // text, by the flags' names
}

// findConfigFile finds, reads and checks the config file. A missing file is an error only if --config names it.
func findConfigFile(named Setting) (configFile, error) {
	candidates := []string{configFileName}
	if named.Given() {
		candidates = []string{named.Value}
	} else if dir, err := os.UserConfigDir(); err == nil {
		candidates = append(candidates, filepath.Join(dir, "elasticrun", configFileName))
	}
	for _, path := range candidates {
		where := printable.Quote(path)
		if named.Given() {
			where = named.Where()
		}
		file, err := readConfigFile(path, named.Given())
		switch {
		case err == nil:
			return file, nil
		case isUsage(err):
			return configFile{}, err
		case named.Given() || mayExist(path):
			return configFile{}, &UsageError{Where: where, Problem: "cannot read the config file: " + reason(err)}
		}
		// The file does not exist, or the home folder is another user's (HOME kept by setpriv or a container).
	}
	return configFile{}, nil
}

func isUsage(err error) bool {
	_, ok := errors.AsType[*UsageError](err)
	return ok
}

// readConfigFile reads and checks one file. Its error is a *UsageError that names the file, unless the file cannot be
// read.
func readConfigFile(path string, named bool) (configFile, error) {
	f, err := safefile.Open(path, named)
	if err != nil {
		return configFile{}, err
	}
	defer func() { _ = f.Close() }()
	file := configFile{path: path, named: named, exposure: f.Exposure}
	if f.Exposure.Grade == safefile.ExposedToAnybody && !named {
		return configFile{}, &UsageError{Where: printable.Quote(path), Problem: fmt.Sprintf(
			"%s, so this config file is not used: %sname it with --config=%s to use it anyway",
			f.Exposure.How, orRemedy(f.Exposure), printable.Quote(path))}
	}
	data, err := f.ReadAll(maxConfigFile, fifoTimeout)
	switch {
	case errors.Is(err, safefile.ErrTooLarge):
		return configFile{}, errors.New("it is larger than 1 MiB, so it is no config file")
	case err != nil:
		return configFile{}, err
	}
	file.values, err = parseFile(printable.Quote(path), data)
	return file, err
}

// orRemedy returns the first of two ways out, if there is one.
func orRemedy(e safefile.Exposure) string {
	if e.Remedy == "" {
		return ""
	}
	return e.Remedy + ", or "
}

// mayExist reports whether path may exist: it is not missing, and its folders' permissions do not hide it.
func mayExist(path string) bool {
	_, err := os.Stat(path)
	if info, linkErr := os.Lstat(path); linkErr == nil && info.Mode()&fs.ModeSymlink != 0 {
		return true // a link to nothing: its file may be on a disk that is not mounted
	}
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission)
}

// refuse returns an error if the file sets a flag that a file with its exposure must not set. A command never comes
// from a file that others could have written. The name of a file to write may, if the user named the config file.
func (c configFile) refuse(flags []Flag, settings []Setting) error {
	if c.exposure.Grade == safefile.Unexposed {
		return nil
	}
	for _, s := range settings {
		f, _ := findFlag(flags, s.Name)
		what := ""
		switch {
		case s.Source.Kind != FromFile || s.Value == "":
		case f.Effect == Executes:
			what = "a command"
		case f.Effect == Writes && !c.named:
			what = "a file to write"
		}
		if what != "" {
			return &UsageError{Where: printable.Quote(c.path) + ": " + f.Name, Problem: fmt.Sprintf(
				"this config file may not name %s, because %s: %sgive --%s on the command line",
				what, c.exposure.How, orRemedy(c.exposure), f.Name)}
		}
	}
	return nil
}

// parseFile decodes a config file, with keys as in the table and values as text. It calls the codec directly: viper's
// own reader lower-cases keys, turns dots into nesting and drops empty values before they can be checked.
func parseFile(path string, data []byte) (map[string]any, error) {
	decoder, err := viper.NewCodecRegistry().Decoder("yaml")
	if err != nil {
		return nil, fmt.Errorf("find the YAML decoder: %w", err)
	}
	if err := checkText(data); err != nil {
		return nil, &UsageError{Where: path, Problem: err.Error()}
	}
	if line := secondDocument(data); line > 0 {
		return nil, &UsageError{
			Where: path, Problem: fmt.Sprintf("line %d: begins another document, which would be ignored: keep one", line),
		}
	}
	raw := map[string]any{}
	if err := decoder.Decode(data, raw); err != nil {
		return nil, &UsageError{Where: path, Problem: yamlProblem(err.Error())}
	}
	values := make(map[string]any, len(raw))
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		f, err := fileKey(key)
		if err != nil {
			return nil, &UsageError{Where: path + ": " + printable.Quote(key), Problem: err.Error()}
		}
		if _, twice := values[f.Name]; twice {
			return nil, &UsageError{Where: path + ": " + printable.Quote(key), Problem: "given in both spellings; keep one"}
		}
		text, err := fileValue(f.Kind, raw[key])
		if err != nil {
			return nil, &UsageError{Where: path + ": " + printable.Quote(key), Problem: err.Error()}
		}
		values[f.Name] = text
	}
	return values, nil
}

// fileKey finds the flag that a key of the config file stands for.
func fileKey(key string) (Flag, error) {
	flags := Flags()
	f, ok := findFlag(flags, key)
	if ok && !f.CommandLineOnly {
		return f, nil
	}
	if ok {
		return Flag{}, errors.New("belongs on the command line, not in a config file")
	}
	var names []string
	for _, f := range flags {
		if !f.CommandLineOnly {
			names = append(names, f.Name)
		}
	}
	if near := nearest.Of(underscoreToDash(key), names); near != "" {
		return Flag{}, fmt.Errorf("unknown key; the nearest is %s", near)
	}
	return Flag{}, errors.New(
		"unknown key; keys are the long flags without their dashes (the script is given on the command line)",
	)
}

// isDuration reports whether v is a duration with a unit, such as 30s. A quoted number is plain text.
func isDuration(v string) bool {
	_, err := time.ParseDuration(v)
	return err == nil && strings.ContainsAny(v, "hms")
}

// fileValue checks a YAML value's type and returns its command-line form. It does not accept numbers as plain text:
// YAML has already turned 010 into 8 and 1.10 into 1.1.
func fileValue(kind Kind, value any) (string, error) {
	switch v := value.(type) {
	case string:
		if kind == KindString || kind == KindSpec || kind == KindSeconds && isDuration(v) {
			return v, nil
		}
	case int:
		if kind == KindInt || kind == KindSeconds || kind == KindSpec {
			return strconv.Itoa(v), nil
		}
	case float64:
		if kind == KindSeconds {
			return strconv.FormatFloat(v, 'g', -1, 64), nil
		}
	case bool:
		if kind == KindBool {
			return strconv.FormatBool(v), nil
		}
	}
	want := map[Kind]string{
		KindString: "text", KindSpec: "text or a whole number", KindInt: "a whole number",
		KindSeconds: "a number of seconds or a duration such as 30s", KindBool: "true or false",
	}[kind]
	switch v := value.(type) {
	case nil:
		return "", fmt.Errorf("must be %s, got nothing", want)
	case []any:
		return "", fmt.Errorf("must be %s, got a list", want)
	case map[string]any, map[any]any:
		return "", fmt.Errorf("must be %s, got a map", want)
	case string:
		return "", fmt.Errorf("must be %s, got %q", want, v)
	}
	if kind == KindString {
		return "", fmt.Errorf("must be text, got %v: put it in quotes", value)
	}
	return "", fmt.Errorf("must be %s, got %v", want, value)
}

// reason returns an error of package os without the path, which the message names already.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}
