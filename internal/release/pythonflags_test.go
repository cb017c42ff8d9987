package release

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/config"
)

var update = flag.Bool("update", false, "rewrite python/_flags.py")

// TestPythonFlags compares the keyword arguments of Python's launch with the flag table. -update rewrites them.
func TestPythonFlags(t *testing.T) {
	const path = "python/_flags.py"
	want := pythonFlags(config.Flags())
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, read(t, "python", "_flags.py")); diff != "" {
		t.Errorf("%s differs from the flag table; go test ./internal/release -run TestPythonFlags -update rewrites it "+
			"(-want +got):\n%s", path, diff)
	}
}

// pythonFlags returns a module with the names and types of all flags but those that only print something.
func pythonFlags(flags []config.Flag) string {
	flags = slices.DeleteFunc(flags, func(f config.Flag) bool { return f.Kind == config.KindAction })
	var switches, values, fields []string
	for _, f := range flags {
		name := fmt.Sprintf("        %q,\n", f.Underscored())
		if f.Kind == config.KindBool {
			switches = append(switches, name)
		} else {
			values = append(values, name)
		}
		fields = append(fields, fmt.Sprintf("        %s: Optional[%s]\n%s", f.Underscored(), pythonType(f), docString(f.Help)))
	}
	return `"""The launcher's flags as keyword arguments. go test ./internal/release -run TestPythonFlags -update writes this file."""

from __future__ import annotations

SWITCHES = frozenset(
    (
` + strings.Join(switches, "") + `    )
)
VALUES = frozenset(
    (
` + strings.Join(values, "") + `    )
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import Optional, TypedDict, Union

    class Flags(TypedDict, total=False):
        """The flags; None leaves one out."""

` + strings.Join(fields, "")
}

// pythonType returns the type of a flag's value.
func pythonType(f config.Flag) string {
	switch {
	case f.Kind == config.KindBool:
		return "bool"
	case f.Kind == config.KindInt:
		return "int"
	case f.Kind == config.KindSeconds:
		return "Union[float, str]"
	case f.Kind == config.KindSpec:
		return "Union[int, str]"
	case f.Placeholder == "FILE" || f.Placeholder == "DIR":
		return "Union[str, os.PathLike[str]]"
	case strings.Contains(f.Placeholder, "=") && strings.HasSuffix(f.Placeholder, ",..."):
		return "Union[str, Mapping[str, object]]"
	}
	return "str"
}

// docString returns a text as the documentation of a field, which editors show.
func docString(text string) string {
	const indent, width = "        ", 100
	out, line := indent+`r"""`, len(indent)+4
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case line+1+len(word) > width:
			out, line = out+"\n"+indent, len(indent)
		default:
			out, line = out+" ", line+1
		}
		out, line = out+word, line+len(word)
	}
	return out + `"""` + "\n"
}
