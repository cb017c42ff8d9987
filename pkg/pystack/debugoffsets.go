package pystack

import (
	"fmt"
	"slices"
)

// debugCookie is what _PyRuntime begins with from 3.13 on.
const debugCookie = "xdebugpy"

const (
	// maxOffset bounds the offsets that a process describes. The interpreter state, the largest of the structs, has some
	// 100 KB.
	maxOffset = 1 << 20
	// maxSmallOffset bounds those in objects, frames and thread states, which are smaller than 1 KB.
	maxSmallOffset = pageSize
)

// describedWords is the number of words that describedIn refers to, for the longest of the structs.
const describedWords = 93

// describedIn has, by minor version, the index of each offset in _Py_DebugOffsets, which is an array of 64-bit numbers:
// 1 is PY_VERSION_HEX, 2 whether the build is free-threaded. CPython's headers have it in
// Include/internal/pycore_runtime.h (3.13) and pycore_debug_offsets.h (3.14, 3.15). A C program with offsetof checked
// the indexes with the headers of 3.13.0, 3.13.5, 3.14.8 and 3.15.0.
var describedIn = map[int]layout{
	13: {
		interpretersHead: 5, interpreterID: 7, interpreterNext: 8, threadsHead: 9,
		threadPrevious: 20, threadNext: 21, threadInterpreter: 22, threadFrame: 23, threadID: 24, nativeID: 25,
		framePrevious: 29, frameCode: 30, frameInstruction: 31, frameOwner: 33,
		codeFile: 35, codeName: 37, codeLines: 38, codeFirstLine: 39, codeStart: 43,
		objectType: 45, typeName: 47, bytesSize: 65, bytesData: 66,
		textState: 68, textLength: 69, asciiSize: 70,
	},
	14: {
		interpretersHead: 5, interpreterID: 7, interpreterNext: 8, threadsHead: 9,
		threadPrevious: 23, threadNext: 24, threadInterpreter: 25, threadFrame: 26, threadID: 27, nativeID: 28,
		framePrevious: 32, frameCode: 33, frameInstruction: 34, frameOwner: 36,
		codeFile: 40, codeName: 42, codeLines: 43, codeFirstLine: 44, codeStart: 48,
		objectType: 51, typeName: 53, bytesSize: 75, bytesData: 76,
		textState: 78, textLength: 79, asciiSize: 80,
	},
	15: {
		interpretersHead: 5, interpreterID: 7, interpreterNext: 8, threadsHead: 9,
		threadPrevious: 23, threadNext: 24, threadInterpreter: 25, threadFrame: 26, threadID: 30, nativeID: 31,
		framePrevious: 40, frameCode: 41, frameInstruction: 42, frameOwner: 44,
		codeFile: 48, codeName: 50, codeLines: 51, codeFirstLine: 52, codeStart: 56,
		objectType: 59, typeName: 61, bytesSize: 87, bytesData: 88,
		textState: 90, textLength: 91, asciiSize: 92,
	},
}

// versionIn returns the version that _Py_DebugOffsets at an address names; ok is false if none is there.
func versionIn(mem memory, runtime uint64) (v Version, ok bool) {
	head := make([]byte, 16)
	if mem.readAt(head, runtime) != nil || string(head[:8]) != debugCookie {
		return Version{}, false
	}
	return versionOf(word(head, 8)), true
}

// layoutOf reads the layout that the process describes itself.
func layoutOf(mem memory, runtime uint64, v Version) (*layout, error) {
	table := make([]byte, describedWords*8)
	if err := mem.readAt(table, runtime); err != nil {
		return nil, err
	}
	l, ok := describedIn[v.Minor]
	if !ok || string(table[:8]) != debugCookie || versionOf(word(table, 8)) != v {
		return nil, unsupported("python %v does not describe its layout", v)
	}
	if word(table, 16) != 0 {
		return nil, unsupported("free-threaded build of %d.%d", v.Major, v.Minor)
	}
	large, small := l.offsets()
	for _, offset := range slices.Concat(large, small) {
		*offset = word(table, *offset*8)
	}
	if exceeds(large, maxOffset) || exceeds(small, maxSmallOffset) {
		return nil, fmt.Errorf("python %v describes impossible offsets: %w", v, ErrUnreadable)
	}
	// PyCompactUnicodeObject adds a length and a pointer (Include/cpython/unicodeobject.h).
	l.compactSize = l.asciiSize + 16
	l.frames, l.lines, l.firstShim = directFrames, locations, ownedByInterpreter
	return &l, nil
}

// exceeds reports whether an offset is larger than the largest possible one.
func exceeds(offsets []*uint64, largest uint64) bool {
	return slices.ContainsFunc(offsets, func(offset *uint64) bool { return *offset > largest })
}

// offsets returns the offsets that a process describes: those in the runtime and in interpreter states, and those in
// the smaller structs.
func (l *layout) offsets() (large, small []*uint64) {
	return []*uint64{&l.interpretersHead, &l.interpreterID, &l.interpreterNext, &l.threadsHead}, []*uint64{
		&l.threadPrevious, &l.threadNext, &l.threadInterpreter, &l.threadFrame, &l.threadID, &l.nativeID,
		&l.framePrevious, &l.frameCode, &l.frameInstruction, &l.frameOwner,
		&l.codeFile, &l.codeName, &l.codeLines, &l.codeFirstLine, &l.codeStart,
		&l.objectType, &l.typeName, &l.bytesSize, &l.bytesData, &l.textState, &l.textLength, &l.asciiSize,
	}
}
