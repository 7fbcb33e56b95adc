package executor

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/apollo-11/apollo/events"
)

// MaxAccesses is how many accesses a Result names at most. One more says how many were left out: its name is "more".
const MaxAccesses = 64

// maxFound bounds what is remembered of one attempt.
const maxFound = 4096

// accesses collects what an attempt did beside its declarations.
type accesses struct {
	soft  map[events.Pair]bool // whether an access is no reason by itself that the attempt fails
	first events.Pair          // that is one
	hard  bool                 // first is set
	lost  int                  // more than can be remembered
}

func (a *accesses) add(p events.Pair, soft bool) {
	was, known := a.soft[p]
	switch {
	case known:
		soft = soft && was
	case len(a.soft) >= maxFound:
		a.lost++
		return
	case a.soft == nil:
		a.soft = map[events.Pair]bool{}
	}
	a.soft[p] = soft
	if !soft && !a.hard {
		a.first, a.hard = p, true
	}
}

// list gives the accesses sorted, those of one directory as the directory where there are many, and bounded.
func (a *accesses) list() []events.Pair {
	if len(a.soft) == 0 {
		return nil
	}
	return fold(a.all(), MaxAccesses, a.lost)
}

func (a *accesses) all() []events.Pair {
	all := make([]events.Pair, 0, len(a.soft))
	for p := range a.soft {
		all = append(all, p)
	}
	slices.SortFunc(all, comparePairs)
	return all
}

func comparePairs(a, b events.Pair) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
}

// fold makes a sorted list of at most `most` accesses and the number of what was left out. As long as there are too many
// it replaces those that lie deepest by their directory, written with a slash at its end, where that saves any.
func fold(all []events.Pair, most, lost int) []events.Pair {
	for len(all) > most {
		shorter := foldDeepest(all)
		if len(shorter) == len(all) {
			break
		}
		all = shorter
	}
	if left := len(all) - most; left > 0 || lost > 0 {
		all = append(slices.Clone(all[:min(len(all), most)]), events.Pair{Name: "more", Value: strconv.Itoa(max(0, left) + lost)})
	}
	return all
}

func foldDeepest(all []events.Pair) []events.Pair {
	above := make(map[events.Pair]int, len(all))
	for _, p := range all {
		above[aboveOf(p)]++
	}
	deepest := 0
	for p, n := range above {
		if n > 1 {
			deepest = max(deepest, strings.Count(p.Value, "/"))
		}
	}
	folded := make(map[events.Pair]bool, len(all))
	for _, p := range all {
		if dir := aboveOf(p); above[dir] > 1 && strings.Count(dir.Value, "/") == deepest {
			p = dir
		}
		folded[p] = true
	}
	list := make([]events.Pair, 0, len(folded))
	for p := range folded {
		list = append(list, p)
	}
	slices.SortFunc(list, comparePairs)
	return list
}

// aboveOf gives the access to the directory above; what has none stays itself.
func aboveOf(p events.Pair) events.Pair {
	dir := path.Dir(strings.TrimSuffix(p.Value, "/"))
	if !strings.HasPrefix(p.Value, "/") || dir == "/" {
		return p
	}
	return events.Pair{Name: p.Name, Value: dir + "/"}
}

// toleratedPaths are looked at by libraries and language runtimes of their own accord, which do without: name services and
// the performance counters of Java. They are refused, and are no reason that an attempt fails.
var toleratedPaths = []string{"/run/systemd/userdb", "/run/nscd", "/run/sssd", "/run/dbus", "/run/systemd", "/run/avahi-daemon", "/var/lib/sss", "/var/run/nscd",
	"/var/cache/nscd", "/var/db/nscd", "/var/lib/extrausers", "/sys/fs/selinux", "/sys/kernel/security"}

func tolerated(name string) bool {
	for _, dir := range toleratedPaths {
		if rest, ok := strings.CutPrefix(name, dir); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return strings.HasPrefix(name, "/tmp/hsperfdata_") || strings.HasPrefix(name, "/tmp/.java_pid")
}

// Unobserved stands among the accesses of an attempt that should have been observed where the system cannot.
var Unobserved = events.Pair{Name: "unobserved", Value: "this kernel does not tell what an attempt uses"}

// Declare gives the lines of YAML that declare the accesses, to be pasted into the stage. What a stage writes has to be
// written into its own directory besides, and is left out here.
func Declare(found []events.Pair) []string {
	var trees, files, left []string
	network := false
	for _, p := range found {
		if p.Name == "execute" && strings.HasPrefix(p.Value, "/") {
			trees = addTree(trees, programTree(p.Value))
		}
	}
	for _, p := range found {
		name := strings.TrimSuffix(p.Value, "/")
		switch {
		case p.Name == "connect":
			network = true
		case p.Name == "leave":
			if own, is := strings.CutPrefix(p.Value, "out/"); is && !strings.HasPrefix(own, "...") {
				left = append(left, own)
			}
		case p.Name != "read" && p.Name != "list" || !strings.HasPrefix(name, "/") || below(trees, name):
		case ofProgram(name):
			trees = addTree(trees, programTree(name))
		default:
			files = addTree(files, name)
		}
	}
	var lines []string
	if files = slices.DeleteFunc(files, func(f string) bool { return below(trees, f) }); len(files) > 0 {
		lines = append(lines, "inputs: {"+strings.Join(withRoles(files, "file"), ", ")+"}")
	}
	if len(left) > 0 {
		lines = append(lines, "outputs: {"+strings.Join(withRoles(left, "path"), ", ")+"}")
	}
	if len(trees) > 0 {
		slices.Sort(trees)
		for i := range trees {
			trees[i] = yamlText(trees[i])
		}
		lines = append(lines, "isolation: {mode: enforce, readable: ["+strings.Join(trees, ", ")+"]}")
	}
	if network {
		lines = append(lines, "network: allow")
	}
	return lines
}

// addTree adds a path unless it lies below one that is there, and drops those that lie below it.
func addTree(list []string, name string) []string {
	if below(list, name) {
		return list
	}
	return append(slices.DeleteFunc(list, func(other string) bool { return below([]string{name}, other) }), name)
}

func below(trees []string, name string) bool {
	for _, tree := range trees {
		if name == tree || strings.HasPrefix(name, strings.TrimSuffix(tree, "/")+"/") {
			return true
		}
	}
	return false
}

// ofProgram tells parts of programs from data.
func ofProgram(name string) bool {
	switch path.Ext(name) {
	case ".so", ".py", ".pyc", ".pth", ".jar", ".class", ".rb", ".pm", ".pl", ".node":
		return true
	}
	return strings.Contains(path.Base(name), ".so.") || strings.Contains(name, "/node_modules/") || strings.Contains(name, "/site-packages/")
}

// programTree gives the directory that a program lies in with its parts; never the root, a home directory or what holds
// those.
func programTree(name string) string {
	for _, part := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/", "/libexec/"} {
		if i := strings.Index(name, part); i > 0 && !wide(name[:i]) {
			return name[:i]
		}
	}
	if dir := path.Dir(name); !wide(dir) {
		return dir
	}
	return name
}

// wide reports whether a directory holds more than one program or user.
func wide(dir string) bool {
	depth := strings.Count(dir, "/")
	return depth < 2 || depth < 3 && strings.HasPrefix(dir, "/home/")
}

// withRoles gives each file a role after its name; key is where its path stands.
func withRoles(files []string, key string) []string {
	slices.Sort(files)
	taken := map[string]bool{}
	list := make([]string, 0, len(files))
	for _, file := range files {
		role := RoleOf(file)
		for n := 2; taken[role]; n++ {
			role = fmt.Sprintf("%s_%d", RoleOf(file), n)
		}
		taken[role] = true
		list = append(list, role+": {"+key+": "+yamlText(file)+"}")
	}
	return list
}

// RoleOf makes a role, as the language takes it, of a file's or directory's path.
func RoleOf(file string) string {
	name := path.Base(file)
	if i := strings.IndexByte(name, '.'); i > 0 {
		name = name[:i]
	}
	role := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, name)
	role = strings.Trim(role, "_")
	if role == "" || role[0] <= '9' || yamlWords[role] {
		role = strings.TrimSuffix("file_"+role, "_")
	}
	return role[:min(len(role), 64)]
}

// yamlWords mean something else than a text to YAML, as a key too.
var yamlWords = map[string]bool{"null": true, "true": true, "false": true, "yes": true, "no": true, "on": true, "off": true, "y": true, "n": true}

// yamlText writes a text so that it is one in a list or map of one line.
func yamlText(text string) string {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%") == "" {
		return text
	}
	return strconv.Quote(text)
}
