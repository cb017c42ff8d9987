package urlrdzv

import (
	"fmt"
	"strconv"
	"strings"
)

// parsedURL has the parts of a rendezvous URL. As in torch, nothing is unescaped.
type parsedURL struct {
	authority string // between "://" and the path
	path      string // begins with "/", or is empty
	query     map[string]string
}

// parseURL parses a URL. It ignores a fragment, after "#".
func parseURL(url string) (parsedURL, error) {
	_, rest, _ := strings.Cut(url, "://")
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	l := parsedURL{authority: rest, query: map[string]string{}}
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		l.authority, l.path = rest[:slash], rest[slash:]
	}
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return parsedURL{}, fmt.Errorf("query parameter %q has no value; write %s=VALUE", pair, pair)
		}
		l.query[name] = value
	}
	return l, nil
}

// setting is a value that the user has set, with its name for errors.
type setting struct {
	name string
	text string
}

// invalid returns an error that says what is wrong with s.
func (s setting) invalid(format string, args ...any) error {
	return fmt.Errorf("%s=%q: %s", s.name, s.text, fmt.Sprintf(format, args...))
}

func (s setting) number() (int, error) {
	n, err := strconv.Atoi(s.text)
	if err != nil {
		return 0, s.invalid("must be a whole number")
	}
	return n, nil
}

// position is a worker's rank among all workers.
type position struct {
	rank      int
	worldSize int
}

// parsePosition parses the settings rank and world_size, which find returns by name.
func parsePosition(find func(name string) (setting, error)) (position, error) {
	rank, err := find("rank")
	if err != nil {
		return position{}, err
	}
	worldSize, err := find("world_size")
	if err != nil {
		return position{}, err
	}
	var p position
	if p.rank, err = rank.number(); err != nil {
		return position{}, err
	}
	if p.worldSize, err = worldSize.number(); err != nil {
		return position{}, err
	}
	switch {
	case p.worldSize < 1:
		return position{}, worldSize.invalid("must be at least 1")
	case p.rank < 0 || p.rank >= p.worldSize:
		return position{}, rank.invalid("must be at least 0 and below the world size, %d", p.worldSize)
	}
	return p, nil
}

// parameter returns a setting of the query.
func (l parsedURL) parameter(name string) (setting, error) {
	if value, ok := l.query[name]; ok {
		return setting{name: name, text: value}, nil
	}
	return setting{}, fmt.Errorf("%s parameter missing: add %s=NUMBER to the URL's query",
		strings.ReplaceAll(name, "_", " "), name)
}

// parsePort parses a port that clients can connect to.
func parsePort(s setting) (int, error) {
	port, err := strconv.Atoi(s.text)
	if err != nil || port < 1 || port > 65535 {
		return 0, s.invalid("must be a whole number from 1 to 65535")
	}
	return port, nil
}
