package events

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

//go:generate go test -run TestGeneratedDocs . -update

var update = flag.Bool("update", false, "write the generated documents and golden logs that do not exist")

// TestGeneratedDocs fails when a document that is made from the code is out of date; -update writes it anew.
func TestGeneratedDocs(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{"state-machine.md": stateMachineDoc(), "events.md": eventsDoc(), "joins.md": joinsDoc()} {
		path := filepath.Join("..", "docs", name)
		if *update {
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		there, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(content, string(there)); diff != "" {
			t.Errorf("docs/%s is out of date: run go generate ./events\n%s", name, diff)
		}
	}
}

const generatedNote = "<!-- Made from package events by `go generate ./events`. Do not edit. -->\n\n"

func stateMachineDoc() string {
	var b strings.Builder
	b.WriteString("# States and what moves them\n\n" + generatedNote +
		"This is the one table of what may follow what. Everything else is refused as an invariant violation (`E_INVARIANT`)\n" +
		"and leaves the state as it was.\n")
	for _, of := range []struct{ title, entity string }{{"A run", "run"}, {"A stage", "stage"}} {
		fmt.Fprintf(&b, "\n## %s\n\n", of.title)
		writeDiagram(&b, of.entity)
		b.WriteString("\n| event | from | to |\n|---|---|---|\n")
		for _, tr := range Transitions() {
			if tr.Event.Entity() == of.entity {
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", tr.Event.Short(), tr.From, stays(tr))
			}
		}
	}
	b.WriteString("\n`run.resumed` moves stages too: each that has not completed is pending again, whatever it was.\n" +
		"\n## Conditions beside the table\n\n" + conditions)
	return b.String()
}

func stays(tr Transition) string {
	if tr.From == tr.To {
		return "stays"
	}
	return tr.To.String()
}

func writeDiagram(b *strings.Builder, entity string) {
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	if entity == "stage" {
		b.WriteString("    [*] --> pending: run.created\n")
	}
	for _, tr := range Transitions() {
		if tr.Event.Entity() != entity || tr.From == tr.To {
			continue
		}
		from := tr.From.String()
		if tr.From == None {
			from = "[*]"
		}
		fmt.Fprintf(b, "    %s --> %s: %s\n", from, tr.To, tr.Event.Short())
	}
	ends := []State{Completed, Failed, Cancelled}
	if entity == "stage" {
		for _, s := range []State{Failed, Skipped, Cancelled} {
			fmt.Fprintf(b, "    %s --> pending: run.resumed\n", s)
		}
		ends = append(ends, Skipped)
	}
	for _, s := range ends {
		fmt.Fprintf(b, "    %s --> [*]\n", s)
	}
	b.WriteString("```\n")
}

const conditions = "Some conditions a table of states cannot say. They are in `Run.guard` and `Run.stageGuard`:\n\n" +
	"- A run completes when every stage has ended, none has failed without `may_fail`, and nobody asked for a cancel.\n" +
	"- A run fails when every stage has ended and one has failed without `may_fail`. With class `system` it fails at any time\n" +
	"  and leaves its stages as they stand; `run.resumed` voids their claims.\n" +
	"- A run is cancelled when somebody asked for it and no stage is open.\n" +
	"- In a run that has ended nothing happens to a stage but `stage.late_result`.\n" +
	"- A stage is queued or started when its run is running and not being cancelled, and every stage that it needs has\n" +
	"  completed (with `always: true`: has ended). Attempts are numbered without gaps.\n" +
	"- A stage is skipped when a stage that it needs has failed, was skipped or cancelled, or when it could go.\n" +
	"- `stage.completed`, `stage.failed`, `stage.retry_scheduled` and the `stage.cancelled` of a running stage carry the fencing\n" +
	"  token of the claim: the sequence of its `stage.started`.\n" +
	"- A stage is cancelled only after `run.cancel_requested`.\n"

func eventsDoc() string {
	var b strings.Builder
	b.WriteString("# Event types\n\n" + generatedNote +
		"An event's CloudEvents type is `apollo.<name>.v1`; that is its Watermill topic too. The number is what the store keeps and\n" +
		"what the hash chain covers. Numbers are never reused. [state-machine.md](state-machine.md) says what may follow what,\n" +
		"[event-format.md](event-format.md) how an event is written.\n\n" +
		"| number | name | meaning | fields of `data` |\n|---|---|---|---|\n")
	for _, spec := range Catalogue() {
		fields := "none"
		if len(spec.Fields) > 0 {
			fields = "`" + strings.Join(spec.Fields, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s |\n", spec.Type, spec.Type.Short(), spec.Meaning, fields)
	}
	b.WriteString("\n## Fields of `data`\n\nOne list serves every type; a field that is zero is left out. Numbers are those of the encoded form.\n\n" +
		"| number | name | Go type |\n|---|---|---|\n")
	for _, f := range listFields() {
		fmt.Fprintf(&b, "| %d | `%s` | `%s` |\n", f.number, f.name, f.kind)
	}
	b.WriteString("\nNumbers above the last belong to newer builds. They are kept as they are, and shown in the member `encoded`.\n\n" +
		"## Failure classes\n\n")
	for _, c := range Classes() {
		fmt.Fprintf(&b, "- `%s`\n", c)
	}
	return b.String()
}

type fieldDoc struct {
	number     uint64
	name, kind string
}

// listFields finds each field's number by encoding a Data that has nothing else.
func listFields() (list []fieldDoc) {
	data := reflect.TypeFor[Data]()
	for i := range data.NumField() {
		f := data.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		var d Data
		fill(reflect.ValueOf(&d).Elem().Field(i))
		number, _ := binary.Uvarint(d.AppendEncoded(nil))
		list = append(list, fieldDoc{number, name, strings.ReplaceAll(f.Type.String(), "events.", "")})
	}
	slices.SortFunc(list, func(a, b fieldDoc) int { return int(a.number) - int(b.number) })
	return list
}

// fill makes a value that is not zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint64, reflect.Uint8:
		v.SetUint(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Array:
		fill(v.Index(0))
	case reflect.Struct:
		fill(v.Field(0))
	default:
		panic(v.Kind())
	}
}

func TestCatalogueIsCompleteAndTrue(t *testing.T) {
	t.Parallel()
	var types []Type
	known := map[string]bool{}
	for _, f := range listFields() {
		known[f.name] = true
	}
	used := map[Type][]string{}
	for _, spec := range Catalogue() {
		types = append(types, spec.Type)
		used[spec.Type] = spec.Fields
		for _, name := range spec.Fields {
			if !known[name] {
				t.Errorf("%s: data has no field %q", spec.Type.Short(), name)
			}
		}
	}
	if !slices.Equal(types, Types()) {
		t.Errorf("the catalogue lists %v, the types are %v", types, Types())
	}
	// What the golden logs say, the catalogue knows.
	for name := range goldenRuns {
		for line := range bytes.Lines(readTestdata(t, "golden/v1-"+name+".log")) {
			e, _, err := ParseCloudEvent(line)
			if err != nil {
				t.Fatal(err)
			}
			for i := range reflect.TypeFor[Data]().NumField() {
				name, _, _ := strings.Cut(reflect.TypeFor[Data]().Field(i).Tag.Get("json"), ",")
				if name != "-" && !reflect.ValueOf(e.Data).Field(i).IsZero() && !slices.Contains(used[e.Type], name) {
					t.Errorf("%s uses %q, which the catalogue does not say", e.Type.Short(), name)
				}
			}
		}
	}
}
