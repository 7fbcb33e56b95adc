package architecture_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// modulePath is the prefix of every import path of our own; a rule speaks of packages by what follows it.
const modulePath = "github.com/apollo-11/apollo"

// source is one parsed Go file of the module.
type source struct {
	path      string // slash-separated, from the root of the tree
	test      bool
	generated bool
	lines     int
	file      *ast.File
}

// tree is what the rules judge. It is read from an fs.FS, so that a rule's self-check can hand it a made-up one.
type tree struct {
	root    fs.FS
	fset    *token.FileSet
	sources []source
}

// loadTree parses every Go file of the module under root. Like the go command it leaves out testdata, nested modules, and
// directories whose name starts with a dot or an underscore.
func loadTree(root fs.FS) (tree, error) {
	t := tree{root: root, fset: token.NewFileSet()}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && notOurs(root, name):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		s, err := parse(t.fset, root, name)
		t.sources = append(t.sources, s)
		return err
	})
	if err != nil {
		return tree{}, fmt.Errorf("load tree: %w", err)
	}
	return t, nil
}

func notOurs(root fs.FS, dir string) bool {
	if dir == "." {
		return false
	}
	base := path.Base(dir)
	_, err := fs.Stat(root, path.Join(dir, "go.mod"))
	return err == nil || base == "testdata" || base == "node_modules" || base[0] == '.' || base[0] == '_'
}

func parse(fset *token.FileSet, root fs.FS, name string) (source, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return source{}, err
	}
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	if err != nil {
		return source{}, err
	}
	return source{
		path:      name,
		test:      strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(file),
		lines:     bytes.Count(text, []byte("\n")),
		file:      file,
	}, nil
}

// written returns the files that people wrote and that are shipped: neither tests nor generated.
func (t tree) written() []source {
	var written []source
	for _, s := range t.sources {
		if !s.test && !s.generated {
			written = append(written, s)
		}
	}
	return written
}

// at renders a problem as path:line: text.
func (t tree) at(node ast.Node, format string, args ...any) string {
	p := t.fset.Position(node.Pos())
	return fmt.Sprintf("%s:%d: %s", p.Filename, p.Line, fmt.Sprintf(format, args...))
}

// pkg is the directory of the file's package.
func (s source) pkg() string { return path.Dir(s.path) }

// imported returns the import path of a spec.
func imported(spec *ast.ImportSpec) string {
	p, _ := strconv.Unquote(spec.Path.Value) // the parser has checked the quotes
	return p
}

// within reports whether the import path or directory p is root or lies under it.
func within(p, root string) bool { return p == root || strings.HasPrefix(p, root+"/") }

// uses calls visit for every mention of a name of the package with the given import path. A dot import is a mention of "*".
func (s source) uses(importPath string, visit func(at ast.Node, name string)) {
	local := ""
	for _, spec := range s.file.Imports {
		if imported(spec) != importPath {
			continue
		}
		local = path.Base(importPath)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == "." {
			visit(spec, "*")
		}
	}
	if local == "" || local == "." {
		return
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && x.Obj == nil { // Obj is set when a variable hides the package
				visit(sel, sel.Sel.Name)
			}
		}
		return true
	})
}
