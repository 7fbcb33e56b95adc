package replay

import (
	"context"
	"errors"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// Source gives a run: a store does, and a file of runs.
type Source interface {
	Run(ctx context.Context, id events.ID) (storage.RunRow, error)
	Plan(ctx context.Context, digest events.Digest) ([]byte, error)
	Events(ctx context.Context, stream events.ID, after uint64, limit int) ([]storage.Sealed, error)
}

// Result says whether a run's log is what the engine would write now. The fields of its JSON may grow, and are never renamed.
type Result struct {
	Run      string           `json:"run"`
	Events   uint64           `json:"events"`
	Verdict  string           `json:"verdict"` // same, differs
	Mismatch *events.Mismatch `json:"first_mismatch"`
}

// The verdicts.
const (
	Same    = "same"
	Differs = "differs"
)

func (r *Result) differs(m *events.Mismatch) { r.Verdict, r.Mismatch = Differs, m }

// One replays a run, up to an event when until is not 0. each, when set, sees every event and the state after it. The run
// is given as far as it agrees.
func One(ctx context.Context, s Source, id events.ID, until uint64, each func(*events.Event, *events.Run)) (Result, *events.Run, error) {
	row, err := s.Run(ctx, id)
	if err != nil {
		return Result{}, nil, err
	}
	g, err := storage.ReadGraph(ctx, s, row.Plan)
	if err != nil {
		return Result{}, nil, err
	}
	p := events.NewReplayer(g)
	result := Result{Run: id.String(), Verdict: Same}
	var failed error
	for e, err := range storage.Stream(ctx, s, id, 0) {
		if failed = err; err != nil || until > 0 && e.Sequence > until {
			break
		}
		if m := p.Step(&e.Event, e.Encoded); m != nil {
			result.differs(m)
			return result, p.Run(), nil
		}
		result.Events++
		if each != nil {
			each(&e.Event, p.Run())
		}
	}
	if errors.Is(failed, storage.ErrCorrupt) {
		result.differs(&events.Mismatch{Sequence: result.Events + 1, Recorded: "damaged", Recomputed: failed.Error()})
		return result, p.Run(), nil
	}
	if failed == nil && row.State.Terminal() && until == 0 {
		result.settle(&row, p.Run().Mark)
	}
	return result, p.Run(), failed
}

// settle compares the head of the log with what the row keeps of it: what the chain cannot say of its last event.
func (r *Result) settle(row *storage.RunRow, mark events.Chain) {
	if mark.Sequence != row.Sequence || mark.Head != row.Head {
		r.differs(&events.Mismatch{Sequence: row.Sequence, Recorded: "row with head " + row.Head.String(), Recomputed: "log with head " + mark.Head.String()})
	}
}
