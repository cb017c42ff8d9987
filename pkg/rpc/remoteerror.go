package rpc

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// RemoteError is what a function returned, or panicked with, on the worker where it ran.
//
// Nothing is in its chain, because the values stayed there. So errors.Is(err, context.DeadlineExceeded) speaks of the
// caller's own deadline alone, and that of a function which ran into one of its own shows in Type and Message. Where the
// caller's deadline has passed too when the error comes, the call has timed out ([ErrTimeout]), and errors.As still finds
// the RemoteError.
type RemoteError struct {
	// Worker is where the function ran, Func its name.
	Worker WorkerInfo
	Func   string
	// Type is the Go type of the error, as %T prints it: of the first in its chain that does more than wrap, that is none of
	// fmt.Errorf's and errors.Join's and not of [WithStack]. Where that is the RemoteError of a further call, it is that one's
	// Type, so that a type comes through from any depth. For a panic it is the type of the value.
	Type string
	// Message is the error's text, or the panic's value; of more than 64 KiB it is the beginning.
	Message string
	// Stack says where the error comes from, a section for each worker that it has passed through, innermost first. A section
	// has a line with the worker and the function, and then the stack of the panic, or that of WithStack, or else the place
	// where the function is declared. Of more than 64 KiB it is the beginning.
	Stack string
	// Panic tells that the function panicked.
	Panic bool
}

// maxText bounds the texts of a RemoteError, in bytes, so that no error is too large to be sent.
const maxText = 64 << 10

// Error is one line. %+v prints the stack below it.
func (e *RemoteError) Error() string {
	what := "returned"
	if e.Panic {
		what = "panicked with"
	}
	return fmt.Sprintf("function %s of %s %s %s: %s", e.Func, e.Worker, what, e.Type, oneLine(e.Message))
}

// Format implements [fmt.Formatter] for the sake of %+v.
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

// returnedError is what the callers are told of an error that a function of self returned. declared says where the
// function is, for an error without a stack.
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

// panickedError is the same of a panic. It has to be called while the stack of the panic is there.
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

// origin is what an error tells of where it comes from.
type origin struct {
	typeName string // of the first error that does more than wrap
	stack    string // of the first WithStack
	passed   string // the stacks of the workers that it has passed through
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
				o.stack = framesText(e.frames)
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

// onlyWraps knows the types of package fmt and errors that add nothing but text. The types are not exported.
func onlyWraps(typeName string) bool {
	return typeName == "*fmt.wrapError" || typeName == "*fmt.wrapErrors" || typeName == "*errors.joinError"
}

// walk visits err and all that it wraps, the outermost first.
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
