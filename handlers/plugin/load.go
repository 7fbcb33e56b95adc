package plugin

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/apollo-11/apollo/configs"
)

// ManifestFile is the name of every manifest.
const ManifestFile = "plugin.yaml"

// Plugin is one plug-in of the directory, usable when it has no Fault.
type Plugin struct {
	configs.Manifest        // the name alone when the manifest could not be read
	Dir              string // absolute
	Digest           string // sha256:<hex> of the file as it was found; empty when it could not be read
	Fault            *Fault
}

// Fault is why a plug-in is left out.
type Fault struct {
	Code   string
	Reason string // one sentence
	Hint   string // how to mend it
}

// Error gives "CODE: reason; hint".
func (f *Fault) Error() string { return strings.TrimSuffix(f.Code+": "+f.Reason+"; "+f.Hint, "; ") }

// Set is a directory of plug-ins.
type Set struct {
	Dir     string
	Plugins []*Plugin // sorted by name
	Fault   *Fault    // why the directory itself could not be read
}

// Load reads every plug-in of a directory. One that is broken is in the set, with its fault. A directory that is not there
// is a fault of the set.
func Load(dir string) *Set {
	s := &Set{Dir: dir}
	entries, err := os.ReadDir(dir)
	if err != nil {
		s.Fault = &Fault{"E_PLUGIN_DIR", "the directory of plug-ins cannot be read: " + err.Error(), "give the directory that holds them with --plugins"}
		return s
	}
	fault := trusted(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if strings.HasPrefix(e.Name(), ".") || err == nil && !info.IsDir() {
			continue
		}
		p := &Plugin{Manifest: configs.Manifest{Name: e.Name()}, Dir: path, Fault: fault}
		if fault == nil {
			p.Fault = p.load()
		}
		s.Plugins = append(s.Plugins, p)
	}
	return s
}

// Get finds a plug-in by its name, nil when there is none.
func (s *Set) Get(name string) *Plugin {
	if i := slices.IndexFunc(s.Plugins, func(p *Plugin) bool { return p.Name == name }); i >= 0 {
		return s.Plugins[i]
	}
	return nil
}

// Options gives what definitions need to know: the executors, and everything that was left out.
func (s *Set) Options() []configs.Plugin {
	var list []configs.Plugin
	for _, p := range s.Plugins {
		o := configs.Plugin{Name: p.Name, With: p.With, Timeout: p.Timeout}
		switch {
		case p.Fault != nil:
			o.Skipped = p.Fault.Error()
		case p.Kind != configs.PluginExecutor:
			continue
		default:
			o.Pin = p.Pin()
		}
		list = append(list, o)
	}
	return list
}

// Template is what a plug-in offers to those who begin a pipeline.
type Template struct {
	Name        string
	Description string
	File        string // absolute
}

// Templates gives the templates among the plug-ins.
func (s *Set) Templates() []Template {
	var list []Template
	for _, p := range s.Plugins {
		if p.Fault == nil && p.Kind == configs.PluginTemplate {
			list = append(list, Template{Name: p.Name, Description: p.Description, File: filepath.Join(p.Dir, p.Template)})
		}
	}
	return list
}

// Pin names the plug-in as exactly as a plan needs it: name@version sha256:<hex>.
func (p *Plugin) Pin() string { return p.Name + "@" + p.Version + " sha256:" + p.SHA256 }

// load reads the manifest and checks the file.
func (p *Plugin) load() *Fault {
	if f := trusted(p.Dir); f != nil {
		return f
	}
	root, err := os.OpenRoot(p.Dir)
	if err != nil {
		return &Fault{"E_PLUGIN_MANIFEST", "the directory cannot be opened: " + err.Error(), ""}
	}
	defer root.Close() //nolint:errcheck // a directory
	manifest, fault := p.readManifest(root)
	if fault != nil {
		return fault
	}
	if manifest.Name != p.Name {
		return &Fault{"E_PLUGIN_NAME", fmt.Sprintf("the manifest in the directory %s says that its name is %s", p.Name, manifest.Name), "give both the same name"}
	}
	p.Manifest = *manifest
	if slices.Contains(configs.StageKeys(), p.Name) {
		return &Fault{"E_PLUGIN_NAME", "the name " + p.Name + " is taken: it is a key of every stage", "choose another name"}
	}
	f, fault := p.open(root)
	if fault != nil {
		return fault
	}
	defer f.Close() //nolint:errcheck // it was only read
	found, err := digest(f, io.Discard)
	if err != nil {
		return &Fault{"E_PLUGIN_FILE", "the file " + p.File() + " cannot be read: " + err.Error(), ""}
	}
	p.Digest = "sha256:" + found
	return p.compare(found)
}

// compare holds a digest against the manifest's.
func (p *Plugin) compare(found string) *Fault {
	if found == p.SHA256 {
		return nil
	}
	return &Fault{"E_PLUGIN_HASH", fmt.Sprintf("the SHA-256 of %s is %s, and the manifest pins %s", p.File(), found, p.SHA256),
		"put the pinned file back, or, if the change is meant, write the new digest into " + ManifestFile}
}

func (p *Plugin) readManifest(root *os.Root) (*configs.Manifest, *Fault) {
	f, fault := openFile(root, ManifestFile, "E_PLUGIN_MANIFEST")
	if fault != nil {
		return nil, fault
	}
	defer f.Close() //nolint:errcheck // it was only read
	src, err := io.ReadAll(io.LimitReader(f, configs.MaxFileSize+1))
	if err != nil {
		return nil, &Fault{"E_PLUGIN_MANIFEST", "the manifest cannot be read: " + err.Error(), ""}
	}
	manifest, problems := configs.ParseManifest(filepath.Join(p.Dir, ManifestFile), src)
	if manifest == nil {
		for i := range problems {
			problems[i].Snippet = ""
		}
		return nil, &Fault{"E_PLUGIN_MANIFEST", strings.ReplaceAll(problems.Error(), "\n", "; "), ""}
	}
	return manifest, nil
}

// open opens the file that the plug-in is made of.
func (p *Plugin) open(root *os.Root) (*os.File, *Fault) {
	f, fault := openFile(root, p.File(), "E_PLUGIN_FILE")
	if fault != nil || p.Kind == configs.PluginTemplate {
		return f, fault
	}
	if info, err := f.Stat(); err != nil || info.Mode().Perm()&0o100 == 0 {
		f.Close() //nolint:errcheck // it was not even read
		return nil, &Fault{"E_PLUGIN_MODE", p.File() + " is not executable", "chmod u+x " + filepath.Join(p.Dir, p.File())}
	}
	return f, nil
}

// openFile opens a regular file below the directory that nobody but the engine's user and root can change. Symbolic links
// that leave the directory are refused by the root.
func openFile(root *os.Root, name, code string) (*os.File, *Fault) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe must not make it wait
	if err != nil {
		if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
			err = inner.Err
		}
		return nil, &Fault{code, "the file " + name + " cannot be opened: " + err.Error(), "put it beside the manifest"}
	}
	info, err := f.Stat()
	var fault *Fault
	switch {
	case err != nil:
		fault = &Fault{code, "the file " + name + " cannot be read: " + err.Error(), ""}
	case !info.Mode().IsRegular():
		fault = &Fault{code, name + " is no regular file", "put a file there"}
	default:
		fault = onlyOurs(filepath.Join(root.Name(), name), info)
	}
	if fault != nil {
		f.Close() //nolint:errcheck // it was not even read
		return nil, fault
	}
	return f, nil
}

// trusted wants a directory that nobody but the engine's user and root can change.
func trusted(dir string) *Fault {
	info, err := os.Stat(dir)
	if err != nil {
		return &Fault{"E_PLUGIN_MANIFEST", "the directory cannot be read: " + err.Error(), ""}
	}
	return onlyOurs(dir, info)
}

// onlyOurs refuses what others may change, since they could put their own code there.
func onlyOurs(name string, info fs.FileInfo) *Fault {
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return &Fault{"E_PLUGIN_MODE", fmt.Sprintf("%s has mode %04o: its group or everybody may change it", name, mode), "chmod go-w " + name}
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() && st.Uid != 0 {
		return &Fault{"E_PLUGIN_MODE", fmt.Sprintf("%s belongs to user %d, who is neither root nor the user %d of this process", name, st.Uid, os.Geteuid()),
			"chown it to the user that runs apollo"}
	}
	return nil
}
