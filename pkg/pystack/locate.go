package pystack

import (
	"cmp"
	"errors"
	"io"
	"path"
)

// The symbols that the package looks for. CPython exports all of them.
const (
	runtimeSymbol  = "_PyRuntime"
	versionSymbol  = "Py_Version"      // from 3.11 on
	tenSymbol      = "Py_NewRef"       // from 3.10 on
	nineSymbol     = "PyFrame_GetCode" // from 3.9 on
	anySymbol      = "Py_IsInitialized"
	runtimeSection = ".PyRuntime" // from 3.11 on: the section that consists of _PyRuntime
)

// found is a Python in the memory of a process.
type found struct {
	file    string // path of its program or library
	runtime uint64 // address of _PyRuntime
	version Version
}

// file is an open file of a program or library.
type file interface {
	io.ReaderAt
	io.Closer
}

// searchResult is the result of a search so far.
type searchResult struct {
	best *found
	old  string // path of a Python without _PyRuntime, which is older than 3.7
}

// search looks for Python in the images of a process. It calls open for the file of a mapping whose symbols are not in
// memory.
func search(mem memory, all []mapping, program string, open func(mapping) (file, error)) (*found, error) {
	likelyFirst(all, program)
	var s searchResult
	for _, m := range all {
		img, err := readImage(mem, m.start)
		if errors.Is(err, ErrExited) || isUnsupported(err) {
			return nil, err
		}
		if err == nil && s.add(mem, m, img) {
			return s.best, nil
		}
	}
	if s.best == nil {
		s.searchFiles(mem, all, program, open)
	}
	switch {
	case s.best != nil:
		if s.best.version == (Version{}) {
			return nil, unsupported("the version of the python of %s is unknown", path.Base(s.best.file))
		}
		return s.best, s.best.version.check()
	case s.old != "":
		if v, ok := versionOfName(s.old); ok && v.check() != nil {
			return nil, v.check()
		}
		return nil, unsupported("the python of %s is older than %d.%d", path.Base(s.old), major, oldestMinor)
	}
	return nil, unsupported("it is not Python")
}

// add looks for Python in one image, and reports whether it found one that has interpreters. A program that is linked
// to libpython can contain a second _PyRuntime that is not in use.
func (s *searchResult) add(mem memory, m mapping, img *image) bool {
	t, ok := img.readSymbols()
	if !ok {
		return false
	}
	at, ok := img.lookup(t, runtimeSymbol)
	if !ok {
		if _, ok := img.lookup(t, anySymbol); ok {
			s.old = m.path
		}
		return false
	}
	lookup := func(name string) (uint64, bool) { return img.lookup(t, name) }
	return s.consider(mem, &found{file: m.path, runtime: at, version: findVersion(mem, at, m.path, lookup)})
}

// consider records a Python, and reports whether it is in use.
func (s *searchResult) consider(mem memory, f *found) bool {
	inUse := hasInterpreter(mem, f)
	if s.best == nil || inUse {
		s.best = f
	}
	return inUse
}

// searchFiles looks for symbols that only the files have, in the program and in libraries with the name of Python.
func (s *searchResult) searchFiles(mem memory, all []mapping, program string, open func(mapping) (file, error)) {
	for _, m := range all {
		if _, named := versionOfName(m.path); !named && m.path != program {
			continue
		}
		img, err := readImage(mem, m.start)
		if err != nil {
			continue
		}
		f, err := open(m)
		if err != nil {
			continue // such as a library whose file is gone
		}
		symbols, err := fileSymbols(f, runtimeSymbol, versionSymbol, tenSymbol, nineSymbol)
		f.Close()
		at := cmp.Or(symbols[runtimeSymbol], symbols[runtimeSection])
		if err != nil || at == 0 {
			continue
		}
		at += img.bias
		lookup := func(name string) (uint64, bool) {
			addr, ok := symbols[name]
			return addr + img.bias, ok
		}
		if s.consider(mem, &found{file: m.path, runtime: at, version: findVersion(mem, at, m.path, lookup)}) {
			return
		}
	}
}

// findVersion returns the version of the Python that has _PyRuntime at an address; 0.0 if it is not known.
func findVersion(mem memory, runtime uint64, file string, lookup func(string) (uint64, bool)) Version {
	if at, ok := lookup(versionSymbol); ok {
		if hex, err := readWord(mem, at); err == nil {
			return versionOf(hex)
		}
	}
	if v, ok := versionIn(mem, runtime); ok {
		return v
	}
	if v, ok := versionOfName(file); ok {
		return v
	}
	if _, ok := lookup(tenSymbol); ok {
		return Version{Major: major, Minor: 10, Micro: -1}
	}
	if _, ok := lookup(nineSymbol); ok {
		return Version{Major: major, Minor: 9, Micro: -1}
	}
	return Version{}
}

// layoutFor returns the layout of a Python.
func layoutFor(mem memory, f *found) (*layout, error) {
	if err := f.version.check(); err != nil {
		return nil, err
	}
	if l, ok := layouts[f.version.Minor]; ok {
		return &l, nil
	}
	return layoutOf(mem, f.runtime, f.version)
}

// hasInterpreter reports whether a Python has an interpreter.
func hasInterpreter(mem memory, f *found) bool {
	l, err := layoutFor(mem, f)
	if err != nil {
		return false
	}
	head, err := readWord(mem, f.runtime+l.interpretersHead)
	return err == nil && head != 0
}
