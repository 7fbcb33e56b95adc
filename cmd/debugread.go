package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// logSource is where a stored run is read from.
type logSource interface {
	planSource
	Events(ctx context.Context, stream events.ID, after uint64, limit int) ([]storage.Sealed, error)
}

// planSource gives plans as they were frozen.
type planSource interface {
	Plan(ctx context.Context, digest events.Digest) ([]byte, error)
}

// fileSource is where the artifacts of a stored run are read from.
type fileSource interface {
	Get(d events.Digest) (*artifacts.Reader, error)
	Has(d events.Digest) bool
	Place(ctx context.Context, d events.Digest, root *os.Root, name string, p artifacts.Placing) error
}

// past is an attempt of a stored run.
type past struct {
	log   logSource
	files fileSource
	run   *events.Run // as it stood once the attempt had started
	place int
	start *events.Event
	end   *events.Event // nil: it goes on
	last  int           // number of the stage's last attempt
}

// try is the start of an attempt, and its end as far as there is one.
type try struct{ start, end *events.Event }

// findPast finds an attempt of a stage, or instance; number 0 is the last.
func (a *app) findPast(ctx context.Context, log logSource, files fileSource, id events.ID, at web.Place, number int) (*past, error) {
	var tries []try
	run, err := walkLog(ctx, log, id, 0, func(e *events.Event) {
		if e.Data.Stage != at.Stage || e.Data.Item != at.Item {
			return
		}
		kept := *e
		switch e.Type {
		case events.StageStarted:
			tries = append(tries, try{start: &kept})
		case events.StageCompleted, events.StageFailed, events.StageRetryScheduled, events.StageCancelled:
			if n := len(tries); n > 0 && tries[n-1].end == nil {
				tries[n-1].end = &kept
			}
		default:
		}
	})
	if err != nil {
		return nil, err
	}
	if err := a.mustBeDebuggable(run, at); err != nil {
		return nil, err
	}
	if len(tries) == 0 {
		return nil, a.fail(exitNotFound, "E_NO_ATTEMPT", "error.no_attempt", lang.Data{"Stage": labelOf(at)})
	}
	p := &past{log: log, files: files, last: tries[len(tries)-1].start.Data.Attempt}
	for _, t := range tries {
		if number == 0 || t.start.Data.Attempt == number {
			p.start, p.end = t.start, t.end
		}
	}
	if p.start == nil {
		return nil, a.fail(exitNotFound, "E_NO_ATTEMPT", "error.no_such_attempt", lang.Data{"Stage": labelOf(at), "Number": number, "Last": p.last})
	}
	if p.run, err = walkLog(ctx, log, id, p.start.Sequence, nil); err != nil {
		return nil, err
	}
	p.place, _ = p.run.Find(at.Stage, at.Item)
	return p, nil
}

// mustBeDebuggable refuses what the run has no place for, and a stage of which only the instances have attempts.
func (a *app) mustBeDebuggable(r *events.Run, at web.Place) error {
	k, known := r.Graph.Index(at.Stage)
	switch _, there := r.Find(at.Stage, at.Item); {
	case !known:
		return a.fail(exitNotFound, "E_REF", "error.no_stage", lang.Data{"Stage": at.Stage})
	case !there:
		return a.fail(exitNotFound, "E_REF", "error.no_item", lang.Data{"Stage": at.Stage, "Item": at.Item})
	case r.Graph.Plan.Stages[k].Foreach != "" && at.Item == 0:
		return a.usageError("usage.item", lang.Data{"Stage": at.Stage, "Count": r.Stages[k].Count})
	}
	return nil
}

// walkLog folds a run's log up to an event; 0 is to its end. each, when set, sees every event.
func walkLog(ctx context.Context, log logSource, id events.ID, until uint64, each func(e *events.Event)) (*events.Run, error) {
	var r *events.Run
	var scratch []byte
	for e, err := range storage.Stream(ctx, log, id, 0) {
		switch {
		case err != nil:
			return nil, err
		case until > 0 && e.Sequence > until:
			return r, nil
		case r == nil:
			g, err := storage.ReadGraph(ctx, log, e.Data.Plan)
			if err != nil {
				return nil, err
			}
			r = events.NewRun(g)
		}
		if scratch, err = r.Chain.Follow(&e.Event, e.Encoded, scratch); err != nil {
			return nil, fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
		}
		if err := r.Apply(&e.Event); err != nil {
			return nil, err
		}
		if each != nil {
			each(&e.Event)
		}
	}
	if r == nil {
		return nil, fmt.Errorf("run %s: %w", id, storage.ErrNotFound)
	}
	return r, nil
}

// attempt makes the attempt anew, from what the log says. What came from the machine is what it was then.
func (p *past) attempt() (*stage.Attempt, error) {
	a := stage.Gather(p.run, p.place, p, p.start.Time)
	a.Number, a.Token = p.start.Data.Attempt, p.start.Sequence
	if p.end == nil {
		return a, nil
	}
	document, err := pinned(p.files, &p.end.Data)
	if err != nil || len(document) == 0 {
		return a, err
	}
	var pins events.Pins
	if err := json.Unmarshal(document, &pins); err != nil {
		return nil, fmt.Errorf("read the pins: %w", err)
	}
	a.Given = make(map[string]events.PinnedInput, len(pins.Inputs))
	for _, in := range pins.Inputs {
		a.Given[in.Role] = in
	}
	return a, nil
}

// Values implements stage.Recorded.
func (p *past) Values() (values map[string]json.RawMessage) {
	_ = json.Unmarshal(p.run.Params, &values) // what is no object shows at the first expression that asks for it
	return values
}

// Upstream implements stage.Recorded.
func (p *past) Upstream(i int) *stage.Upstream { return stage.UpstreamOf(p.run, i) }

// Items implements stage.Recorded.
func (p *past) Items(i int) (items []json.RawMessage, err error) {
	name := p.run.Graph.Plan.Stages[i].Name
	d := p.run.Stages[i].Items
	if d == nil {
		return nil, fmt.Errorf("the stage %s has no items", name)
	}
	list := []byte(d.Items)
	if len(list) == 0 {
		if list, err = p.artifact(d.Blob); err != nil {
			return nil, fmt.Errorf("read the items of %s: %w", name, err)
		}
	}
	if err := json.Unmarshal(list, &items); err != nil {
		return nil, fmt.Errorf("read the items of %s: %w", name, err)
	}
	return items, nil
}

// Delivery implements stage.Recorded.
func (p *past) Delivery(ctx context.Context, id events.ID) (*events.Data, error) {
	log, err := p.log.Events(ctx, id, 0, 1)
	if err != nil {
		return nil, fmt.Errorf("read delivery: %w", err)
	}
	if len(log) == 0 {
		return nil, fmt.Errorf("read delivery %s: not in the log", id)
	}
	return &log[0].Data, nil
}

func (p *past) artifact(d events.Digest) ([]byte, error) { return readArtifact(p.files, d) }

func readArtifact(files fileSource, d events.Digest) ([]byte, error) {
	r, err := files.Get(d)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

// pinned gives the pins document of an event; nothing when it has none.
func pinned(files fileSource, d *events.Data) ([]byte, error) {
	if d.PinnedAt.IsZero() || len(d.Pinned) > 0 {
		return d.Pinned, nil
	}
	return readArtifact(files, d.PinnedAt)
}

// stored opens the artifacts of the data directory to read them; none when there is no directory of them.
func (a *app) stored() (fileSource, func() error, error) {
	dir := filepath.Join(a.data, "artifacts")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return noFiles{}, func() error { return nil }, nil
	}
	s, err := artifacts.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

// noFiles is where nothing was ever stored.
type noFiles struct{}

// Get implements fileSource.
func (noFiles) Get(d events.Digest) (*artifacts.Reader, error) {
	return nil, fmt.Errorf("artifact %s: %w", d, storage.ErrNotFound)
}

// Has implements fileSource.
func (noFiles) Has(events.Digest) bool { return false }

// Place implements fileSource.
func (noFiles) Place(_ context.Context, d events.Digest, _ *os.Root, _ string, _ artifacts.Placing) error {
	return fmt.Errorf("artifact %s: %w", d, storage.ErrNotFound)
}
