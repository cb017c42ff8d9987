package hosts

import (
	"os"
	"path/filepath"
	"strings"
)

// AddNames adds lines to the hosts file of each host, such as "10.75.0.1 alias".
func (l *Lab) AddNames(lines ...string) {
	l.t.Helper()
	for _, h := range l.Hosts {
		name := filepath.Join(h.files, "hosts")
		text, err := os.ReadFile(name)
		if err != nil {
			l.t.Fatal(err)
		}
		text = append(text, strings.Join(lines, "\n")+"\n"...)
		if err := h.write(map[string]string{"hosts": string(text)}); err != nil {
			l.t.Fatal(err)
		}
	}
}
