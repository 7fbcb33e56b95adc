package stage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/apollo-11/apollo/events"
)

// attemptDirs gives where the attempt works and logs. Names are checked identifiers: none can leave its directory.
func (s *Steps) attemptDirs(a *Attempt, run string) (dir, logs string) {
	const slash = string(filepath.Separator)
	below := slash + run + slash + a.Stage.Label(a.Item) + slash + strconv.Itoa(a.Number)
	return s.WorkDir + below, s.LogDir + below
}

// runDirs counts the attempts of each run that are under way here. The directories of a run and its stages go with the
// last of them, if nothing is kept in them; before that, another attempt might just be making its own directory there.
type runDirs struct {
	mu     sync.Mutex
	active map[events.ID]*runDir
}

type runDir struct {
	attempts int
	stages   []string // directories that may be empty now
}

// enter counts an attempt in. leave counts it out; it is given the attempt's directory if that was removed.
func (d *runDirs) enter(workDir string, run events.ID) (leave func(removed string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.active == nil {
		d.active = map[events.ID]*runDir{}
	}
	of := d.active[run]
	if of == nil {
		of = &runDir{}
		d.active[run] = of
	}
	of.attempts++
	return func(removed string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if removed != "" {
			of.stages = append(of.stages, filepath.Dir(removed))
		}
		if of.attempts--; of.attempts > 0 {
			return
		}
		delete(d.active, run)
		for _, stage := range of.stages {
			_ = os.Remove(stage) // stays when a failed attempt is kept in it
		}
		if len(of.stages) > 0 {
			_ = os.Remove(filepath.Join(workDir, run.String())) // likewise
		}
	}
}

// tidy removes the directory of an attempt and gives it back, or "" when there is nothing more to do.
func (s *Steps) tidy(dir string) (removed string) {
	if err := syscall.Access(dir, 0); err != nil { // cheaper than a stat
		return "" // the attempt needed none
	}
	if err := removeTree(dir); err != nil {
		s.Logger.Warn().Err(err).Str("dir", dir).Msg("remove a work directory")
	}
	return dir
}

// removeTree removes a work directory, also when there are read-only directories in it.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	openDirs(dir)
	return os.RemoveAll(dir)
}

// openDirs makes a directory and those below it writable for their owner.
func openDirs(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) //nolint:gosec // a directory needs its x bits
		}
		return nil
	})
}
