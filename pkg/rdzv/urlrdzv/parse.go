package urlrdzv

import (
	"fmt"
	"strconv"
	"strings"
)

// location is a rendezvous URL in pieces. Nothing in them is unescaped, as torch does not either: a path or value is
// taken as it stands.
type location struct {
	authority string // between "://" and the path
	path      string // with its "/"
	query     map[string]string
}

// parseURL takes a URL to pieces. A fragment, after "#", is dropped.
func parseURL(url string) (location, error) {
	_, rest, _ := strings.Cut(url, "://")
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	l := location{authority: rest, query: map[string]string{}}
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		l.authority, l.path = rest[:slash], rest[slash:]
	}
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return location{}, fmt.Errorf("query parameter %q has no value; write %s=VALUE", pair, pair)
		}
		l.query[name] = value
	}
	return l, nil
}

// setting is a number of a user's, and under which name it was found.
type setting struct {
	name string
	text string
}

// refuse says what is wrong with s.
func (s setting) refuse(format string, args ...any) error {
	return fmt.Errorf("%s=%q: %s", s.name, s.text, fmt.Sprintf(format, args...))
}

func (s setting) number() (int, error) {
	n, err := strconv.Atoi(s.text)
	if err != nil {
		return 0, s.refuse("must be a whole number")
	}
	return n, nil
}

// place is a worker's among the others.
type place struct {
	rank      int
	worldSize int
}

// findPlace reads the place from two settings, which find looks up by their names in a query.
func findPlace(find func(name string) (setting, error)) (place, error) {
	rank, err := find("rank")
	if err != nil {
		return place{}, err
	}
	worldSize, err := find("world_size")
	if err != nil {
		return place{}, err
	}
	var p place
	if p.rank, err = rank.number(); err != nil {
		return place{}, err
	}
	if p.worldSize, err = worldSize.number(); err != nil {
		return place{}, err
	}
	switch {
	case p.worldSize < 1:
		return place{}, worldSize.refuse("must be at least 1")
	case p.rank < 0 || p.rank >= p.worldSize:
		return place{}, rank.refuse("must be at least 0 and below the world size, %d", p.worldSize)
	}
	return p, nil
}

// parameter finds a setting in the query.
func (l location) parameter(name string) (setting, error) {
	if value, ok := l.query[name]; ok {
		return setting{name: name, text: value}, nil
	}
	return setting{}, fmt.Errorf("%s parameter missing: add %s=NUMBER to the URL's query",
		strings.ReplaceAll(name, "_", " "), name)
}

// parsePort reads a port that others can connect to.
func parsePort(s setting) (int, error) {
	port, err := strconv.Atoi(s.text)
	if err != nil || port < 1 || port > 65535 {
		return 0, s.refuse("must be a whole number from 1 to 65535")
	}
	return port, nil
}
