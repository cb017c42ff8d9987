package pystack

// layout says where the data of one version of CPython lies: offsets in bytes from the start of each struct.
type layout struct {
	// _PyRuntimeState, PyInterpreterState
	interpretersHead, interpreterNext, interpreterID, threadsHead uint64
	// PyThreadState. nativeID is the kernel's id of the thread, 0 in versions with only threadID, that of pthread_self.
	threadPrevious, threadNext, threadInterpreter, threadFrame, threadID, nativeID uint64
	// PyFrameObject until 3.10, then _PyInterpreterFrame
	framePrevious, frameCode, frameInstruction, frameOwner uint64
	// PyCodeObject. codeStart is where the instructions begin, within the object.
	codeFile, codeName, codeLines, codeFirstLine, codeStart uint64
	// PyObject, PyTypeObject
	objectType, typeName uint64
	// PyASCIIObject, PyCompactUnicodeObject: text follows the one or the other.
	textLength, textState, asciiSize, compactSize uint64
	// PyBytesObject
	bytesSize, bytesData uint64

	// frames says how a thread state refers to its frames.
	frames frameKind
	// current is where a _PyCFrame refers to its frame.
	current uint64
	// lines is the form of a code object's table of lines.
	lines lineFormat
	// firstShim is the lowest owner of a frame that is no call of a Python function; 0 in versions without such frames.
	firstShim byte
	// frameEntry is where a frame says that C code called it. Only 3.11, which has no shims, sets it; otherwise 0.
	frameEntry uint64
}

// frameKind says what a thread state and a frame refer to.
type frameKind int

const (
	// objectFrames: the thread state refers to a PyFrameObject, which has the index of an instruction.
	objectFrames frameKind = iota
	// chainedFrames: the thread state refers to a _PyCFrame on the C stack, and that to a _PyInterpreterFrame, which
	// has the address of an instruction.
	chainedFrames
	// directFrames: the thread state refers to the _PyInterpreterFrame.
	directFrames
)

// layouts has, by minor version, the layouts of versions that do not describe their own.
//
// A C program with offsetof printed the numbers: compiled with CPython's own headers
// (Include/internal/pycore_runtime.h, pycore_interp.h, pycore_frame.h, Include/cpython/pystate.h, code.h,
// frameobject.h, unicodeobject.h) of 3.9.18, 3.10.13, 3.11.2, 3.11.7, 3.12.1 and 3.12.10, for amd64. All fields are
// pointers, Py_ssize_t, int and char, which are as large on arm64, and no field in front of them depends on the
// machine.
var layouts = map[int]layout{
	9: {
		interpretersHead: 32, interpreterNext: 0, interpreterID: 24, threadsHead: 8,
		threadPrevious: 0, threadNext: 8, threadInterpreter: 16, threadFrame: 24, threadID: 176,
		framePrevious: 24, frameCode: 32, frameInstruction: 104,
		codeFile: 104, codeName: 112, codeLines: 120, codeFirstLine: 40,
		objectType: 8, typeName: 24,
		textLength: 16, textState: 32, asciiSize: 48, compactSize: 72,
		bytesSize: 16, bytesData: 32,
		frames: objectFrames, lines: lnotab,
	},
	10: {
		interpretersHead: 32, interpreterNext: 0, interpreterID: 24, threadsHead: 8,
		threadPrevious: 0, threadNext: 8, threadInterpreter: 16, threadFrame: 24, threadID: 176,
		framePrevious: 24, frameCode: 32, frameInstruction: 96,
		codeFile: 104, codeName: 112, codeLines: 120, codeFirstLine: 40,
		objectType: 8, typeName: 24,
		textLength: 16, textState: 32, asciiSize: 48, compactSize: 72,
		bytesSize: 16, bytesData: 32,
		frames: objectFrames, lines: lineRanges,
	},
	11: {
		interpretersHead: 40, interpreterNext: 0, interpreterID: 48, threadsHead: 16,
		threadPrevious: 0, threadNext: 8, threadInterpreter: 16, threadFrame: 56, threadID: 152, nativeID: 160,
		framePrevious: 48, frameCode: 32, frameInstruction: 56, frameOwner: 69,
		codeFile: 112, codeName: 128, codeLines: 136, codeFirstLine: 72, codeStart: 184,
		objectType: 8, typeName: 24,
		textLength: 16, textState: 32, asciiSize: 48, compactSize: 72,
		bytesSize: 16, bytesData: 32,
		frames: chainedFrames, current: 8, lines: locations, frameEntry: 68,
	},
	12: {
		interpretersHead: 40, interpreterNext: 0, interpreterID: 8, threadsHead: 72,
		threadPrevious: 0, threadNext: 8, threadInterpreter: 16, threadFrame: 56, threadID: 136, nativeID: 144,
		framePrevious: 8, frameCode: 0, frameInstruction: 56, frameOwner: 70,
		codeFile: 112, codeName: 128, codeLines: 136, codeFirstLine: 68, codeStart: 192,
		objectType: 8, typeName: 24,
		textLength: 16, textState: 32, asciiSize: 40, compactSize: 56,
		bytesSize: 16, bytesData: 32,
		frames: chainedFrames, current: 0, lines: locations, firstShim: ownedByInterpreter,
	},
}

// ownedByInterpreter is the owner of a frame with which C code enters the interpreter, from 3.12 on. The frame has no
// function. Higher values are owners of other such frames (enum _frameowner in Include/internal/pycore_frame.h and,
// from 3.14 on, pycore_interpframe_structs.h).
const ownedByInterpreter = 3
