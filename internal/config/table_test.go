package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestTable checks what the rest of the package relies on.
func TestTable(t *testing.T) {
	torchrun := strings.Fields(`nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone max-restarts
		monitor-interval start-method event-log-handler role module no-python run-path log-dir redirects tee
		log-line-prefix-template local-ranks-filter print-completion
		duplicate-stdout-filters duplicate-stderr-filters node-rank master-addr master-port local-addr logs-specs numa-binding
		signals-to-handle shutdown-timeout virtual-local-rank help`)
	noVariable := []string{"logs-specs", "numa-binding", "use-env", "dry-run", "print-completion", "help", "version"}
	names, shorts, variables := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, f := range Flags() {
		if names[f.Name] || f.Short != "" && shorts[f.Short] {
			t.Errorf("--%s -%s: the name is taken", f.Name, f.Short)
		}
		names[f.Name], shorts[f.Short] = true, true
		for _, v := range f.Env {
			if variables[v] {
				t.Errorf("--%s: the variable %s is taken", f.Name, v)
			}
			variables[v] = true
		}
		if f.Name != strings.ToLower(f.Name) || strings.ContainsAny(f.Name, "_. =") || f.Help == "" ||
			!strings.HasSuffix(f.Help, ".") {
			t.Errorf("--%s: bad name or help", f.Name)
		}
		if !slices.Contains(Groups(), f.Group) {
			t.Errorf("--%s: unknown group %q", f.Name, f.Group)
		}
		if (f.Placeholder != "") != f.takesValue() {
			t.Errorf("--%s: placeholder %q does not fit its kind", f.Name, f.Placeholder)
		}
		if f.Torchrun != slices.Contains(torchrun, f.Name) {
			t.Errorf("--%s: wrongly counted as torchrun's or not", f.Name)
		}
		if (len(f.Env) == 0) != slices.Contains(noVariable, f.Name) {
			t.Errorf("--%s: variables %q", f.Name, f.Env)
		}
		if f.Torchrun && len(f.Env) > 0 && f.Env[0] != "PET_"+strings.ToUpper(f.Underscored()) {
			t.Errorf("--%s: the first variable is %s", f.Name, f.Env[0])
		}
	}
	for _, name := range torchrun {
		if !names[name] {
			t.Errorf("torchrun's --%s is missing", name)
		}
	}
}

// TestEffects checks that every flag that names a file or a command has an effect, so that a config file that others
// could have written cannot set it.
func TestEffects(t *testing.T) {
	// Whether a value with this placeholder can be a path or a command.
	names := map[string]bool{
		"FILE": true, "DIR": true, "CMD": true,
		"": false, "N": false, "N|MIN:MAX": false, "N|auto|cpu|gpu|xpu": false, "N|LO-HI": false, "NAME": false, "MODE": false, "ID": false, "K=V,...": false,
		"HOST": false, "PORT": false, "HOST[:PORT]": false, "HOST:PORT": false, "METHOD": false, "STREAMS": false, "RANKS": false, "TEXT,...": false,
		"TEMPLATE": false, "SHELL": false, "SIZE": false, "SECONDS": false, "WHEN": false, "SIG,...": false, "CODE": false, "CODES": false, "FROM=TO,...": false, "FORMAT": false, "LEVEL": false,
		"USER,...|any": false, "SECONDS|auto|off": false, "ACTION": false, "REGEXP": false,
	}
	for _, f := range Flags() {
		path, known := names[f.Placeholder]
		switch {
		case !known:
			t.Errorf("--%s: can %s be a path or a command? Say so in this test", f.Name, f.Placeholder)
		case path && f.Effect == NoEffect:
			t.Errorf("--%s %s has no effect in the table: does the launcher read, write or execute it?", f.Name, f.Placeholder)
		case !path && f.Effect != NoEffect:
			t.Errorf("--%s %s has an effect in the table; FILE, DIR or CMD should say so", f.Name, f.Placeholder)
		case strings.HasSuffix(f.Name, "-cmd") && f.Effect != Executes:
			t.Errorf("--%s does not execute anything, says the table", f.Name)
		}
	}
}

// TestDecodeTags checks that every flag tag names a flag of the command's table, and that the table's parser returns
// the type of the field.
func TestDecodeTags(t *testing.T) {
	for _, tt := range []struct {
		target any
		flags  []Flag
	}{
		{&Config{}, Flags()},
		{&Rendezvous{}, Flags()},
		{&Store{}, storeFlags()},
		{&Simulate{}, simulateFlags()},
		{&Logs{}, logsFlags()},
		{&Status{}, statusFlags()},
	} {
		samples := map[string]string{"numa-binding": "node", "log-max-size": "4KiB", "stream": "stdout", "grep": "x"}
		var settings []Setting
		for _, f := range tt.flags {
			s := Setting{
				Name: f.Name, Value: cmp.Or(f.Default, samples[f.Name]), Source: Source{Kind: FromFlag}, Switch: f.Kind == KindBool,
			}
			if s.Value == "" && (f.Kind == KindInt || f.Kind == KindSeconds || strings.HasSuffix(f.Placeholder, ":PORT")) {
				s.Value = "1"
			}
			if strings.HasSuffix(f.Placeholder, ":PORT") {
				s.Value = ":1"
			}
			settings = append(settings, s)
		}
		fields := reflect.TypeOf(tt.target).Elem()
		for field := range fields.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("flag"), ",")
			if f, ok := findFlag(tt.flags, name); name != "" && (!ok || f.Name != name) {
				t.Errorf("%v.%s: the table has no flag %q", fields, field.Name, name)
			}
		}
		r := newReader(tt.flags, settings)
		r.decode(tt.target) // panics if a type differs
		if r.err != nil {
			t.Errorf("%v: %v", fields, r.err)
		}
	}
}
