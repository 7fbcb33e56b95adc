package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// scratch reads artifacts and stores none: what is put into it is only named by its digest.
type scratch struct{ fileSource }

// Put implements stage.Artifacts.
func (scratch) Put(ctx context.Context, r io.Reader) (artifacts.Info, error) {
	return artifacts.Hash(ctx, r)
}

// PutFile implements stage.Artifacts. The file stays where it is.
func (s scratch) PutFile(ctx context.Context, root *os.Root, name string) (artifacts.Info, error) {
	f, err := root.Open(name)
	if err != nil {
		return artifacts.Info{}, err
	}
	defer f.Close() //nolint:errcheck // read only
	return s.Put(ctx, f)
}

// PutDir implements stage.Artifacts. The directory stays where it is.
func (s scratch) PutDir(ctx context.Context, root *os.Root, name string) (artifacts.DirInfo, error) {
	return s.CopyDir(ctx, root, name)
}

// CopyDir implements stage.Artifacts.
func (scratch) CopyDir(ctx context.Context, root *os.Root, name string) (of artifacts.DirInfo, err error) {
	if of.Digest, err = artifacts.HashDir(ctx, root, name); err != nil {
		return of, err
	}
	return of, fs.WalkDir(root.FS(), filepath.Clean(name), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			of.Files, of.Size = of.Files+1, of.Size+info.Size()
		}
		return err
	})
}

// Place implements stage.Artifacts. Nothing is shared with the artifacts: a person may do with the file what he likes.
func (s scratch) Place(ctx context.Context, d events.Digest, root *os.Root, name string, p artifacts.Placing) error {
	p.Shared = false
	return s.fileSource.Place(ctx, d, root, name, p)
}

// Restore implements stage.Artifacts. Nothing was shared.
func (scratch) Restore(context.Context, events.Digest, artifacts.Placing) error { return nil }

// carryOut runs the command as a real attempt does, and compares what came of it with what is recorded.
func (r *rehearsal) carryOut(ctx context.Context) error {
	a := r.app
	if a.output == "text" {
		if err := r.show(a.err, nil); err != nil {
			return err
		}
	}
	outcome := r.steps.Rehearse(ctx, r.laid)
	if a.output == "text" {
		if err := r.passOn(); err != nil {
			return err
		}
	}
	now := outcomeOf(events.StageCompleted, outcome.Data)
	if f := outcome.Failure; f != nil {
		failed := *outcome.Data
		failed.SetFailure(f)
		now = outcomeOf(events.StageFailed, &failed)
	}
	compared := r.compare(now)
	if a.output != "text" {
		if err := r.show(a.out, func(j *debugJSON) { j.Result, j.Compared = now, compared }); err != nil {
			return err
		}
	} else {
		a.put(a.describeOutcome(now))
		r.tellCompared(compared)
	}
	switch {
	case ctx.Err() != nil:
		return silent(exitInterrupted)
	case outcome.Failure != nil:
		return silent(exitOfClass(outcome.Failure.Class))
	}
	return nil
}

// passOn prints what the command wrote, secrets masked.
func (r *rehearsal) passOn() error {
	for _, stream := range []struct {
		name string
		to   io.Writer
	}{{"stdout", r.app.out}, {"stderr", r.app.err}} {
		f, err := os.Open(filepath.Join(r.laid.Call.LogDir, stream.name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = io.Copy(stream.to, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// compare holds an outcome against the recorded one; nil when the attempt goes on.
func (r *rehearsal) compare(now *outcomeJSON) *comparedJSON {
	end := r.past.end
	if end == nil {
		return nil
	}
	recorded := outcomeOf(end.Type, &end.Data)
	c := &comparedJSON{Verdict: "same", Outputs: []roleVerdict{}}
	if recorded.Class != "" || now.Class != "" {
		c.Failure = &failedVerdict{"same", r.app.describeOutcome(recorded), r.app.describeOutcome(now)}
		if recorded.Class != now.Class || recorded.Exit != now.Exit || recorded.Signal != now.Signal || recorded.Reason != now.Reason {
			c.Verdict, c.Failure.Verdict = "differs", "differs"
		}
	}
	st := r.past.run.StageOf(r.past.place)
	for i := range st.Outputs {
		role := st.Outputs[i].Role
		was, had := recorded.Outputs[role]
		is, has := now.Outputs[role]
		v := roleVerdict{Role: role, Verdict: "same", Recorded: was.Digest, Now: is.Digest}
		switch {
		case !had && !has:
			continue
		case st.Compare != nil && slices.Contains(st.Compare.Ignore, role):
			v.Verdict = "ignored"
		case had != has || was.Digest != is.Digest:
			v.Verdict, c.Verdict = "differs", "differs"
		}
		c.Outputs = append(c.Outputs, v)
	}
	return c
}

// tellCompared says how what came of the command compares with what is recorded.
func (r *rehearsal) tellCompared(c *comparedJSON) {
	a := r.app
	if c == nil {
		return
	}
	if f := c.Failure; f != nil && f.Verdict == "same" {
		a.put(a.say.T("debug.same_failure"))
	} else if f != nil {
		a.put(a.say.T("debug.other_failure", lang.Data{"Recorded": f.Recorded}))
	}
	for _, o := range c.Outputs {
		data := lang.Data{"Role": o.Role, "Recorded": orText(o.Recorded, "–"), "Now": orText(o.Now, "–")}
		switch o.Verdict {
		case "same":
			a.put(a.say.T("debug.same_output", data))
		case "ignored":
			a.put(a.say.T("debug.ignored_output", data))
		default:
			a.put(a.say.T("debug.other_output", data))
		}
	}
	a.put(a.say.T("debug.kept", lang.Data{"Dir": r.dir}))
}

// commandFile is the script in the work directory that does what the command line does, for a shell that has the
// environment already.
const commandFile = "command"

// shell opens an interactive shell in the attempt's environment, and waits for its end.
func (r *rehearsal) shell() error {
	a := r.app
	env, failure := r.laid.Environ(nil)
	if failure != nil {
		return r.notLaid(failure)
	}
	script := "#!/bin/sh\n" + r.again() + "\n"
	if err := os.WriteFile(filepath.Join(r.dir, commandFile), []byte(script), 0o700); err != nil { //nolint:gosec // a script has its x bits
		return err
	}
	label := r.past.run.StageOf(r.past.place).Label(int(r.past.run.Stages[r.past.place].Item))
	id := r.past.run.ID.String()
	env = append(env, "PS1="+id[len(id)-8:]+"/"+label+" $ ", "TERM="+orText(a.env("TERM"), "dumb"))
	sh := exec.Command("/bin/sh", "-i") //nolint:noctx // an interrupt is the shell's own business
	if bash, err := exec.LookPath("/bin/bash"); err == nil {
		sh = exec.Command(bash, "--noprofile", "--norc", "-i") //nolint:noctx // as above
	}
	sh.Dir, sh.Env = filepath.Join(r.dir, "out"), env
	sh.Stdin, sh.Stdout, sh.Stderr = a.in, a.out, a.err
	a.tell("debug.shell", lang.Data{"File": "../" + commandFile})
	if err := sh.Start(); err != nil {
		return fmt.Errorf("open a shell: %w", err)
	}
	err := sh.Wait()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		err = nil // how the last command in it ended is no fault of ours
	}
	a.tell("debug.kept", lang.Data{"Dir": r.dir})
	return err
}

// again is the command for a shell that has the environment.
func (r *rehearsal) again() string {
	c := typed{args: r.program()}
	if r.manual != nil {
		c = typed{args: r.manual.Args, input: r.manual.Input}
	}
	return c.line(r.dir, r.tokens())
}
