package rdzvconf

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/nearest"
	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Item is one option as it was given.
type Item struct {
	Key, Value string
	// Unshown says that no message may contain the item: it may be a part of a password that contains a comma.
	Unshown bool
}

// Items returns the options of a map, in the order of their keys.
func Items(config map[string]string) []Item {
	var items []Item
	for _, key := range slices.Sorted(maps.Keys(config)) {
		items = append(items, Item{Key: key, Value: config[key]})
	}
	return items
}

// ErrUnshown is the error for an unknown option that must not be shown.
var ErrUnshown = errors.New("the text after the password is no known option " +
	"(it is not shown, because it may be a part of the password): put a password with a comma into a file, " +
	"password_file=FILE")

// IsPassword recognizes keys whose values must not be shown, including misspelled ones.
func IsPassword(key string) bool {
	key = strings.ToLower(strings.TrimSpace(key))
	return !strings.HasSuffix(key, "_file") &&
		slices.ContainsFunc(
			[]string{"pass", "pwd", "secret", "token"},
			func(part string) bool { return strings.Contains(key, part) },
		)
}

// Read reads the options of a backend. Of several names of an option the first one counts, of several values of one
// name the last one. Read refuses unknown options and values that are not valid or contradict each other. It warns of
// options that have no effect, one line each. secretFile reads the file of password_file; nil reads its text without
// the newline.
func Read(
	backend string, items []Item, secretFile func(path string) (Secret, error),
) (s Settings, warnings []string, err error) {
	if secretFile == nil {
		secretFile = readSecret
	}
	r := &reader{Settings: Defaults(backend), backend: backend, secretFile: secretFile, given: map[string]Item{}}
	err = r.read(items)
	return r.Settings, r.warnings, err
}

// reader sets the fields of Settings from options.
type reader struct {
	Settings
	backend    string
	secretFile func(path string) (Secret, error)
	given      map[string]Item // main name → what was given and counts
	warnings   []string
}

func (r *reader) warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.warnings, text) {
		r.warnings = append(r.warnings, text)
	}
}

func (r *reader) read(items []Item) error {
	options := r.options()
	for _, item := range items {
		named := func(o Option) bool { return slices.Contains(o.Names, item.Key) }
		i := slices.IndexFunc(options, func(o Option) bool { return named(o) && slices.Contains(o.Backends, r.backend) })
		switch {
		case i >= 0:
			if err := r.set(options[i], item); err != nil {
				return err
			}
		case slices.ContainsFunc(options, named):
			r.warn("%s has no effect with the %s backend", item.Key, r.backend)
		case item.Unshown:
			return ErrUnshown
		default:
			return r.unknown(options, item.Key)
		}
	}
	return r.check()
}

// unknown returns the error for an option that no backend has.
func (r *reader) unknown(options []Option, key string) error {
	var names, shown []string
	for _, o := range options {
		if slices.Contains(o.Backends, r.backend) {
			names, shown = append(names, o.Names...), append(shown, o.allNames())
		}
	}
	if near := nearest.Of(key, names); near != "" {
		return fmt.Errorf("unknown option %s; the nearest is %s", printable.Quote(key), near)
	}
	return fmt.Errorf("unknown option %s: the %s backend has %s", printable.Quote(key), r.backend,
		strings.Join(shown, ", "))
}

// set sets one option.
func (r *reader) set(o Option, item Item) error {
	name := o.Names[0]
	before, twice := r.given[name]
	weaker := twice && slices.Index(o.Names, before.Key) < slices.Index(o.Names, item.Key)
	err := o.set(item.Value) // which also checks a value that does not count
	switch {
	case err == nil && weaker:
		r.differ(item, before)
		return o.set(before.Value)
	case err == nil:
		if twice {
			r.differ(before, item)
		}
		r.given[name] = item
		return nil
	case IsPassword(item.Key), item.Unshown:
		return fmt.Errorf("%s %w", item.Key, err)
	}
	return fmt.Errorf("%s=%s %w", item.Key, printable.Quote(item.Value), err)
}

// differ warns if ignored, another name of the option, has another value than the one that counts.
func (r *reader) differ(ignored, counts Item) {
	if ignored.Key != counts.Key && ignored.Value != counts.Value {
		r.warn("%s has no effect beside %s, which has another value", ignored.Key, counts.Key)
	}
}

// etcdMinTTL is the shortest TTL of a lease that etcd keeps exactly.
const etcdMinTTL = 2 * time.Second

// check refuses options that contradict each other.
func (r *reader) check() error {
	const product = "keep_alive_interval × keep_alive_max_attempt"
	one := func(name string) bool { _, ok := r.given[name]; return ok }
	if r.KeepAliveInterval > seconds.Max*time.Second/time.Duration(r.KeepAliveMaxAttempt) {
		return fmt.Errorf("%s must be at most %.0f seconds", product, seconds.Max)
	}
	if one("read_timeout") && r.ReadTimeout > r.RequestTimeout() {
		r.warn("read_timeout is %s, but one reply of the store may take at most %s (heartbeat_timeout, and a third of %s)",
			seconds.Format(r.ReadTimeout), seconds.Format(r.RequestTimeout()), product)
	}
	switch {
	case one("ssl_cert") != one("ssl_cert_key"):
		return errors.New("ssl_cert and ssl_cert_key belong together")
	case r.backend != rdzv.BackendEtcd:
		return nil
	case r.TTL() < etcdMinTTL:
		return fmt.Errorf("%s must be at least %.0f seconds with etcd", product, etcdMinTTL.Seconds())
	case one("password") && one("password_file"):
		return errors.New("password and password_file are the same option: give one of them")
	case one("user") != (one("password") || one("password_file")):
		return errors.New("user and password (or password_file) belong together")
	case !r.Etcd.TLS && (one("ssl_cert") || one("ca_cert")):
		return errors.New("certificates need protocol=https")
	case !r.Etcd.TLS && one("user"):
		r.warn("the password is sent in plain text; use protocol=https")
	}
	return nil
}
