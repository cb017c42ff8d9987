package scheduler

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits on a host list. The DNS limits a name to 255 characters, too.
const (
	maxHosts  = 1 << 20
	maxName   = 255
	maxDigits = 18
)

// Expand returns the hosts of a Slurm host list in their order: gpu[001-003,7],r[1-2]n[01-04],login1. If a name has
// several brackets, the last one varies fastest. Numbers keep the leading zeros of the range's first number. Errors
// name the list and the position in it, in bytes from 1.
func Expand(list string) ([]string, error) {
	p := &hostlist{text: list}
	var hosts []string
	for {
		names, err := p.name(maxHosts - len(hosts))
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, names...)
		if p.at == len(p.text) {
			return hosts, nil
		}
		p.at++ // the comma
	}
}

// hostlist is the parser of a host list.
type hostlist struct {
	text string
	at   int
}

func (p *hostlist) fail(at int, format string, args ...any) error {
	return fmt.Errorf("host list %q, character %d: %s", p.text, at+1, fmt.Sprintf(format, args...))
}

// next returns the next byte, or 0 at the end.
func (p *hostlist) next() byte {
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

// name reads one name with its brackets, up to a comma or the end. It must not expand to more than room hosts.
func (p *hostlist) name(room int) ([]string, error) {
	begin, names := p.at, []string{""}
	for {
		switch c := p.next(); {
		case p.at == len(p.text) || c == ',':
			if p.at == begin {
				return nil, p.fail(p.at, "a host name is missing")
			}
			if len(names) > room {
				return nil, p.fail(begin, "more than %d hosts", maxHosts)
			}
			return names, nil
		case c == '[':
			at := p.at
			parts, err := p.bracket()
			if err != nil {
				return nil, err
			}
			if len(parts)*len(names) > room {
				return nil, p.fail(at, "more than %d hosts", maxHosts)
			}
			if names = combine(names, parts); len(names[len(names)-1]) > maxName {
				return nil, p.fail(at, "a host name is too long")
			}
		case c == ']':
			return nil, p.fail(p.at, "] without [")
		case c <= ' ' || c == 0x7f:
			return nil, p.fail(p.at, "%q cannot be in a host name", c)
		default:
			from := p.at
			for c := p.next(); c > ' ' && c != 0x7f && !strings.ContainsRune("[],", rune(c)); c = p.next() {
				p.at++
			}
			if len(names[len(names)-1])+p.at-from > maxName {
				return nil, p.fail(from, "a host name is too long")
			}
			for i := range names {
				names[i] += p.text[from:p.at]
			}
		}
	}
}

// combine appends each of the parts to each of the names.
func combine(names, parts []string) []string {
	out := make([]string, 0, len(names)*len(parts))
	for _, name := range names {
		for _, part := range parts {
			out = append(out, name+part)
		}
	}
	return out
}

// bracket reads [N,LO-HI,...] and returns the numbers as text.
func (p *hostlist) bracket() ([]string, error) {
	open := p.at
	var numbers []string
	for {
		p.at++ // [ or ,
		first, err := p.digits(open)
		if err != nil {
			return nil, err
		}
		last, at := first, p.at
		if p.next() == '-' {
			p.at++
			if last, err = p.digits(open); err != nil {
				return nil, err
			}
		}
		if numbers, err = p.count(numbers, first, last, at); err != nil {
			return nil, err
		}
		switch p.next() {
		case ',':
		case ']':
			p.at++
			return numbers, nil
		case '[':
			return nil, p.fail(p.at, "[ within brackets")
		case 0:
			return nil, p.fail(open, "[ is not closed")
		default:
			return nil, p.fail(p.at, "%q cannot be in brackets", p.next())
		}
	}
}

// digits reads a number. open is the position of its bracket.
func (p *hostlist) digits(open int) (string, error) {
	from := p.at
	for c := p.next(); c >= '0' && c <= '9'; c = p.next() {
		p.at++
	}
	switch {
	case p.at-from > maxDigits:
		return "", p.fail(from, "a number is too large")
	case p.at > from:
		return p.text[from:p.at], nil
	case p.at == len(p.text):
		return "", p.fail(open, "[ is not closed")
	case p.next() == '[':
		return "", p.fail(p.at, "[ within brackets")
	}
	return "", p.fail(p.at, "a number is missing")
}

// count appends the numbers from first to last, padded to the width of first. at is the position for errors.
func (p *hostlist) count(numbers []string, first, last string, at int) ([]string, error) {
	if first == last {
		return append(numbers, first), nil
	}
	low, _ := strconv.ParseInt(first, 10, 64) // maxDigits always fit
	high, _ := strconv.ParseInt(last, 10, 64)
	switch {
	case low > high:
		return nil, p.fail(at, "the range %s-%s is reversed", first, last)
	case high-low >= int64(maxHosts-len(numbers)):
		return nil, p.fail(at, "more than %d hosts", maxHosts)
	}
	for n := low; n <= high; n++ {
		number := strconv.FormatInt(n, 10)
		numbers = append(numbers, strings.Repeat("0", max(0, len(first)-len(number)))+number)
	}
	return numbers, nil
}
