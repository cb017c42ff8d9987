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

// Functions are what other workers may call, by name; [Func.Handle] fills it. The zero value is empty and ready. A table is
// given to [Init], and takes no more functions from then on. It is safe for concurrent use.
type Functions struct {
	mu     sync.Mutex
	table  map[string]function
	closed bool
}

// function is one entry, with its types behind it.
type function struct {
	// run decodes the payload, runs the function and encodes what it returns. Its error is a *RemoteError, which names self, or an
	// *EncodingError. It does not panic.
	run func(ctx context.Context, self WorkerInfo, payload []byte) ([]byte, error)
}

// NewFunctions returns an empty table.
func NewFunctions() *Functions { return &Functions{} }

// DuplicateError is a name that two functions were to have.
type DuplicateError struct{ Func string }

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("register function %s: the name is taken; each function needs its own", e.Func)
}

// errTableInUse is an addition that nobody would see.
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

// mergeFunctions makes one table of several, nil ones among them, and closes those.
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

// maxFuncName is the longest name of a function, in bytes.
const maxFuncName = 255

// checkFuncName refuses names that would not fit into a line of text.
func checkFuncName(name string) error {
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	if name == "" || len(name) > maxFuncName || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("function name %q: write 1 to %d bytes of printable text", name, maxFuncName)
	}
	return nil
}
