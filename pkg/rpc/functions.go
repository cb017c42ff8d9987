package rpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// Functions is the table of functions that other workers can call, by name. [Func.Handle] fills it. The zero value is
// an empty table. After a table was passed to [Init], it accepts no more functions. It is safe for concurrent use.
type Functions struct {
	mu     sync.Mutex
	table  map[string]function
	closed bool
}

// function is an entry of the table. It decodes the payload, runs the user's function, whose types it hides, and
// encodes the answer. Its error is a *RemoteError, which names self, or an *EncodingError. It does not panic.
type function func(ctx context.Context, self WorkerInfo, payload []byte) ([]byte, error)

// NewFunctions returns an empty table.
func NewFunctions() *Functions { return &Functions{} }

// DuplicateError means that the name of a function is already registered.
type DuplicateError struct{ Func string }

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("register function %s: the name is taken; each function needs its own name", e.Func)
}

// errTableInUse is the error of a registration after Init.
var errTableInUse = errors.New("its table is in use by a group already; register all functions before Init")

// List returns the names, sorted.
func (f *Functions) List() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.table))
}

func (f *Functions) add(name string, fn function) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch _, taken := f.table[name]; {
	case taken:
		return &DuplicateError{Func: name}
	case f.closed:
		return fmt.Errorf("register function %s: %w", name, errTableInUse)
	}
	if f.table == nil {
		f.table = map[string]function{}
	}
	f.table[name] = fn
	return nil
}

// mergeFunctions merges tables, some of which may be nil, and closes them to further registrations.
func mergeFunctions(tables []*Functions) (map[string]function, error) {
	merged := map[string]function{}
	for _, f := range tables {
		if f == nil {
			continue
		}
		f.mu.Lock()
		f.closed = true
		table := f.table
		f.mu.Unlock()
		for _, name := range slices.Sorted(maps.Keys(table)) {
			if _, taken := merged[name]; taken {
				return nil, &DuplicateError{Func: name}
			}
			merged[name] = table[name]
		}
	}
	return merged, nil
}

// maxFuncName is the maximum length of a function name in bytes.
const maxFuncName = 255

// checkFuncName rejects names that do not fit on one line of text.
func checkFuncName(name string) error {
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	if name == "" || len(name) > maxFuncName || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("function name %q: must be 1 to %d bytes of printable text", name, maxFuncName)
	}
	return nil
}
