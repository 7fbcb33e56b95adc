package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// maxLeft is how many undeclared paths are recorded.
const maxLeft = 50

// leave finds what the stage left in its out directory and did not declare: nobody below can read it, so that it is a
// mistake or a scratch file. observe records it, enforce fails the attempt. A directory without any output is named once.
func leave(ctx context.Context, _ *Steps, w *work) *events.Failure {
	if w.Stage.Isolation != "observe" && w.Stage.Isolation != "enforce" {
		return nil
	}
	out, err := os.OpenRoot(filepath.Join(w.call.Dir, "out"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cannot(ctx, "open the out directory", err)
	}
	defer out.Close() //nolint:errcheck // a directory
	left, err := undeclared(ctx, out, w.Stage.Outputs)
	if err != nil {
		return cannot(ctx, "look through the out directory", err)
	}
	if len(left) == 0 {
		return nil
	}
	if w.Stage.Isolation == "enforce" {
		first := left[0]
		role := executor.RoleOf(first)
		return &events.Failure{Class: events.BadOutput, Pointer: "/outputs", Expected: "declared outputs only", Actual: "out/" + strings.Join(left[:min(3, len(left))], ", out/"),
			Reason: fmt.Sprintf("the stage left out/%s, which is no declared output; add outputs: {%s: {path: %s}}, or write scratch files to $TMPDIR", first, role, first)}
	}
	for i, name := range left {
		if i == maxLeft {
			name = fmt.Sprintf("... and %d more", len(left)-maxLeft)
		}
		w.result.Accesses = append(w.result.Accesses, events.Pair{Name: "leave", Value: "out/" + w.masked(name)})
		if i == maxLeft {
			break
		}
	}
	slices.SortStableFunc(w.result.Accesses, func(a, b events.Pair) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// undeclared lists what lies in out and is no output, sorted; a directory ends with a slash.
func undeclared(ctx context.Context, out *os.Root, outputs []events.Output) (left []string, err error) {
	declared, above := map[string]bool{}, map[string]bool{".": true}
	for i := range outputs {
		if p := outputs[i].Path; p != "" {
			p = path.Clean(p)
			declared[p] = true
			for p = path.Dir(p); !above[p]; p = path.Dir(p) {
				above[p] = true
			}
		}
	}
	err = fs.WalkDir(out.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && d == nil:
			return err
		case declared[p] && d.IsDir():
			return fs.SkipDir
		case declared[p] || above[p]:
			return nil
		case d.IsDir():
			left = append(left, p+"/")
			return fs.SkipDir
		}
		left = append(left, p)
		return nil
	})
	slices.Sort(left)
	return left, err
}

// link is an input that may be a hard link to its artifact.
type link struct {
	role string
	placing
}

// guarded reports whether the executor keeps the stage from writing to its inputs, so that they need not be copies.
func (w *work) guarded() bool {
	return w.call.Isolation == "enforce" && slices.Contains([]string{"shell", "python", "container"}, w.Stage.Executor)
}

// unlink ends the sharing of files with the store when the stage is gone. What is kept of a failed attempt for people to
// look into becomes copies: they may do with it what they like.
func (s *Steps) unlink(ctx context.Context, w *work, keep bool) {
	ctx = context.WithoutCancel(ctx)
	for _, l := range w.linked {
		how := artifacts.Placing{Time: w.call.LogicalTime, Dir: l.file.dir()}
		err := s.Artifacts.Restore(ctx, l.file.digest, how)
		if keep && err == nil {
			err = s.copyInstead(ctx, w, l, how)
		}
		if err != nil {
			s.Logger.Warn().Err(err).Str("input", l.role).Msg("give an input back to the store")
		}
	}
}

func (s *Steps) copyInstead(ctx context.Context, w *work, l link, how artifacts.Placing) error {
	dir := filepath.Join(w.call.Dir, "in", l.role)
	openDirs(dir)
	if err := removeTree(filepath.Join(dir, l.name)); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(s.Artifacts.Place(ctx, l.file.digest, root, l.name, how), root.Close())
}
