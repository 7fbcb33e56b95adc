package configs

import (
	"slices"
	"strconv"
	"strings"

	"github.com/apollo-11/apollo/events"
)

// isDirectory reports whether an output's path is that of a directory.
func isDirectory(path string) bool { return strings.HasSuffix(path, "/") }

// refuseChecks says that a directory is no data with a format.
func (b *builder) refuseChecks(n *node, what string) {
	for _, name := range []string{"format", "contract"} {
		if k := n.get(name); k != nil {
			b.at(k, "E_FIELD", what+" is a directory, which has no "+name, "a file with a "+name, "give one of its files a role of its own")
		}
	}
}

// checkOverlaps finds outputs that lie in a directory which is an output too: no byte belongs to two artifacts.
func (b *builder) checkOverlaps(outputs *node) {
	type declared struct {
		role string
		path *node
	}
	var all []declared
	for _, e := range outputs.entries {
		if p := e.value.get("path"); p != nil && p.kind == scalarNode {
			all = append(all, declared{e.key.text, p})
		}
	}
	for _, dir := range all {
		if !isDirectory(dir.path.text) {
			continue
		}
		for _, o := range all {
			if o.path.text != dir.path.text && strings.HasPrefix(o.path.text+"/", dir.path.text) {
				b.at(o.path, "E_PATH", "the output "+o.role+" lies in the directory "+dir.path.text+" of the output "+dir.role, "a path beside it",
					"write it elsewhere, or read it from "+dir.role)
			}
		}
	}
}

// outputKey takes the columns by which rows are compared.
func (b *builder) outputKey(out *events.Output, n *node) {
	if n == nil || n.kind != listNode {
		return
	}
	if out.Format == "" && out.Path != "" && !isDirectory(out.Path) {
		out.Format = formatByName(out.Path)
	}
	if out.Path == "" || out.Format == "" {
		b.at(n, "E_FIELD", "the output "+out.Role+" is no table, and has no key", "a file with a format", "format: csv, tsv, json or ndjson")
		return
	}
	if len(n.items) == 0 {
		b.at(n, "E_VALUE", "the key of "+out.Role+" has no column", "at least one", "leave key out to compare line by line")
	}
	for _, item := range n.items {
		switch {
		case item.kind != scalarNode:
		case slices.Contains(out.Key, item.text):
			b.at(item, "E_VALUE", "the key of "+out.Role+" has the column "+strconv.Quote(shortened(item.text))+" twice", "each column once", "")
		default:
			out.Key = append(out.Key, item.text)
		}
	}
}

// machineInput takes an input that is read from the machine.
func (b *builder) machineInput(s *stageInfo, in *events.Input, n *node) {
	file, from := n.get("file"), n.get("from")
	switch {
	case file == nil:
		b.at(n, "E_REQUIRED", "the input "+in.Role+" has no source", "from: a value, or file: a path on the machine", "")
	case from != nil:
		b.at(file, "E_ONE", "the input "+in.Role+" has from and file", "one of the two", "")
	case file.kind != scalarNode:
	case strings.TrimSpace(file.text) == "" || strings.ContainsRune(file.text, 0):
		b.at(file, "E_PATH", "the input "+in.Role+" names no file", "a path on the machine, relative to the definition", "")
	default:
		s.inputs[in.Role] = fileType
		in.File = b.absolute(file.text)
		if in.Format == "" && in.Contract != "" {
			in.Format = formatByName(in.File)
		}
	}
}

// refuseDirectory says of an input that is a whole output directory that it has no format. It reports whether the input is
// one.
func (b *builder) refuseDirectory(s *stageInfo, in *events.Input, n *node) bool {
	if !in.Expr || !b.wholeDirectory(s, in.From) {
		return false
	}
	if n.kind == mapNode {
		b.refuseChecks(n, "the input "+in.Role)
		in.Format, in.Contract = "", ""
	}
	return true
}

// wholeDirectory reports whether the expression gives a directory that another stage wrote, or a list of those.
func (b *builder) wholeDirectory(s *stageInfo, expression string) bool {
	a, err := analyse(expression)
	if err != nil || !a.path || len(a.references) != 1 || a.references[0].field != "" {
		return false
	}
	r := a.references[0]
	target := b.byName[r.stage]
	return target != nil && target != s && target.outputs[r.role].dir
}
