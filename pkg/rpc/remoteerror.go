package rpc

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// RemoteError is the error that a function returned, or the value that it panicked with, on the worker where it ran.
//
// It wraps nothing, because the error values stay on that worker. So errors.Is(err, context.DeadlineExceeded) is true
// only for the deadline of the caller; a deadline inside the function shows in Type and Message. If the caller's
// deadline has also passed when the error arrives, the call has timed out ([ErrTimeout]), and errors.As still finds the
// RemoteError.
type RemoteError struct {
	// Worker is where the function ran, Func is its name.
	Worker WorkerInfo
	Func   string
	// Type is the Go type of the error, in the format of %T. It is the type of the first error in the chain that does
	// more than wrap: not of fmt.Errorf, errors.Join or [WithStack]. If that error is the RemoteError of a nested call,
	// Type is its Type, so a type survives any depth. For a panic it is the type of the value.
	Type string
	// Message is the text of the error or the value of the panic, cut after 64 KiB.
	Message string
	// Stack shows where the error comes from, with one section per worker that it has passed through, innermost first.
	// A section has a line with the worker and the function. Then follows the stack of the panic, that of WithStack, or
	// else the position of the function's declaration. It is cut after 64 KiB.
	Stack string
	// Panic reports whether the function panicked.
	Panic bool
}

// maxText is the maximum length of each text of a RemoteError in bytes, so that every error can be sent.
const maxText = 64 << 10

// Error returns one line. The format %+v adds the stack.
func (e *RemoteError) Error() string {
	what := "returned"
	if e.Panic {
		what = "panicked with"
	}
	return fmt.Sprintf("function %s of %s %s %s: %s", e.Func, e.Worker, what, e.Type, oneLine(e.Message))
}

// Format implements [fmt.Formatter] for %+v.
func (e *RemoteError) Format(s fmt.State, verb rune) {
	fmt.Fprintf(s, fmt.FormatString(s, verb), e.Error())
	if verb == 'v' && s.Flag('+') && e.Stack != "" {
		fmt.Fprint(s, "\n", e.Stack)
	}
}

// oneLine joins the lines of a text.
func oneLine(text string) string {
	return strings.NewReplacer("\r\n", "; ", "\n", "; ", "\r", "; ").Replace(strings.TrimRight(text, "\r\n"))
}

// returnedError returns the RemoteError for an error that a function of self returned. declared is the position of the
// function, used if the error has no stack.
func returnedError(self WorkerInfo, function string, err error, declared string) *RemoteError {
	o := originOf(err)
	own := o.stack
	if own == "" {
		own = "\tdeclared at " + declared + "\n"
	}
	return &RemoteError{
		Worker: self, Func: function, Type: o.typeName, Message: cut(err.Error()),
		Stack: cut(o.passed + section(self, function, own)),
	}
}

// panickedError returns the RemoteError for a panic. Call it in the deferred function, while the stack of the panic is
// there.
func panickedError(self WorkerInfo, function string, value any) *RemoteError {
	return &RemoteError{
		Worker: self, Func: function, Type: fmt.Sprintf("%T", value), Message: cut(fmt.Sprint(value)), Panic: true,
		Stack: cut(section(self, function, panicStack())),
	}
}

func section(worker WorkerInfo, function, stack string) string {
	return fmt.Sprintf("%s, function %s:\n%s", worker, function, stack)
}

// cut shortens a text to maxText.
func cut(text string) string {
	const mark = "…"
	if len(text) <= maxText {
		return text
	}
	end := maxText - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// origin describes where an error comes from.
type origin struct {
	typeName string // of the first error that does more than wrap
	stack    string // of the first WithStack
	passed   string // stacks of the workers that it passed through
}

func originOf(err error) origin {
	var o origin
	walk(err, func(err error) {
		switch e := err.(type) { //nolint:errorlint // walk follows the chain
		case *RemoteError:
			o.passed += e.Stack
			if o.typeName == "" {
				o.typeName = e.Type
			}
		case *stackError:
			if o.stack == "" {
				o.stack = printFrames(framesOf(e.frames))
			}
		default:
			if name := fmt.Sprintf("%T", err); o.typeName == "" && !onlyWraps(name) {
				o.typeName = name
			}
		}
	})
	if o.typeName == "" {
		o.typeName = fmt.Sprintf("%T", err)
	}
	return o
}

// onlyWraps reports whether a type of package fmt or errors adds only text. These types are not exported.
func onlyWraps(typeName string) bool {
	return typeName == "*fmt.wrapError" || typeName == "*fmt.wrapErrors" || typeName == "*errors.joinError"
}

// walk visits err and all errors that it wraps, outermost first.
func walk(err error, visit func(error)) {
	visit(err)
	switch e := err.(type) { //nolint:errorlint // this is what follows the chain
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			walk(inner, visit)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if inner != nil {
				walk(inner, visit)
			}
		}
	}
}
