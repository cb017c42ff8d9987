package archtest

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// forbidden maps each word that no identifier may contain to the standard terms that replace it. Words with an ordinary
// meaning in this field, such as line, view, part or hold, are not on the list.
var forbidden = map[string]string{
	"tell":      "emit, record, reply, notify or report",
	"tells":     "emit, record, reply, notify or report",
	"told":      "emitted, recorded, replied, notified or reported",
	"seat":      "participant",
	"fate":      "memberStatus",
	"bell":      "noticeTimer",
	"disturb":   "requestStop",
	"misfit":    "mismatch",
	"scene":     "attemptEvidence",
	"inquiry":   "postmortem",
	"clue":      "evidence",
	"clues":     "evidence",
	"overdue":   "exitDeadline",
	"hurry":     "killNow",
	"ladder":    "StopPolicy",
	"lookout":   "telemetry",
	"looker":    "observer",
	"lookers":   "observers",
	"sighting":  "ProbeResult",
	"meeting":   "rendezvous",
	"greeting":  "handshake",
	"parting":   "closing",
	"farewell":  "exitNotice",
	"pulse":     "keepAlive",
	"roster":    "members",
	"poke":      "wake",
	"cease":     "quiesce",
	"patience":  "timeout",
	"imagine":   "hypothetical",
	"imagined":  "hypothetical",
	"immortal":  "noExpiry",
	"stranger":  "unknownPeer",
	"strangers": "unknownPeers",
	"crew":      "agents",
	"mend":      "fix",
	"mended":    "fixed",
}

// declared is one identifier that a file declares.
type declared struct {
	name string
	line int
}

// TestWords reports every declared identifier that contains a forbidden word.
func TestWords(t *testing.T) {
	t.Parallel()
	report(t, checkWords(repository(t)))
}

// checkWords returns a line for each identifier that contains a forbidden word.
func checkWords(files []file) []string {
	var bad []string
	for _, f := range files {
		for _, d := range f.declared {
			for _, word := range words(d.name) {
				if use, ok := forbidden[word]; ok {
					bad = append(bad, fmt.Sprintf("%s:%d: %s contains %q: use %s", f.name, d.line, d.name, word, use))
				}
			}
		}
	}
	return bad
}

// words splits an identifier at underscores, digits and changes of case, and returns its words in lower case.
func words(name string) []string {
	var all []string
	runes := []rune(name)
	start := 0
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			all = append(all, string(runes[start:i]))
			start = i + 1
		case i > start && unicode.IsUpper(r) &&
			(unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			all = append(all, string(runes[start:i]))
			start = i
		}
	}
	all = append(all, string(runes[start:]))
	all = slices.DeleteFunc(all, func(word string) bool { return word == "" })
	for i, word := range all {
		all[i] = strings.ToLower(word)
	}
	return all
}

// declarations returns the identifiers that a file declares: types, functions, fields, parameters, variables and
// constants. Names that it only uses are declared elsewhere.
func declarations(tree *ast.File, line func(ast.Node) int) []declared {
	var all []declared
	add := func(names ...*ast.Ident) {
		for _, n := range names {
			if n != nil && n.Name != "_" {
				all = append(all, declared{n.Name, line(n)})
			}
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			add(n.Name)
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.ValueSpec:
			add(n.Names...)
		case *ast.Field:
			add(n.Names...)
		case *ast.LabeledStmt:
			add(n.Label)
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if id, ok := e.(*ast.Ident); ok && n.Tok.String() == ":=" {
					add(id)
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, ok := e.(*ast.Ident); ok && n.Tok.String() == ":=" {
					add(id)
				}
			}
		}
		return true
	})
	return all
}

func TestSplitWords(t *testing.T) {
	for name, want := range map[string][]string{
		"toldOthers":     {"told", "others"},
		"HTTPServer":     {"http", "server"},
		"wasTold":        {"was", "told"},
		"storytelling":   {"storytelling"},
		"TestX_tell2end": {"test", "x", "tell", "end"},
		"_":              nil,
	} {
		if diff := cmp.Diff(want, words(name)); diff != "" && len(want)+len(words(name)) > 0 {
			t.Errorf("words(%q) (-want +got):\n%s", name, diff)
		}
	}
}

// TestCheckWords gives the check each way of declaring a name.
func TestCheckWords(t *testing.T) {
	src := `package a

type seatOf[stranger any] struct{ told int }

const fate, quiet = 1, 2

func (crew seatOf[T]) tell(hurry int) (clue error) {
	pulse, ok := 1, true
	for scene := range 3 {
		_ = scene
	}
ladder:
	for ok { break ladder }
	pkg.Tell(x.told)
	return nil
}
`
	files, err := read(fstest.MapFS{"pkg/a/a.go": {Data: []byte(src)}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, complaint := range checkWords(files) {
		got = append(got, strings.Fields(complaint)[1])
	}
	slices.Sort(got)
	want := []string{"clue", "crew", "fate", "hurry", "ladder", "pulse", "scene", "seatOf", "stranger", "tell", "told"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
