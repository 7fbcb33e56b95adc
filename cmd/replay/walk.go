package replay

import (
	"context"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// Watcher keeps what the folded state does not say of the events that were passed.
type Watcher interface {
	See(e *events.Event, r *events.Run)
	Clone() Watcher // stands where this one stands, and goes its own way
}

// Walk stands at a place in a run's log and goes forward and back in it. Going back folds again from the nearest of a few
// places that it keeps, so that a long log is no slower to go back in than a part of it is to fold.
type Walk struct {
	source Source
	id     events.ID
	stand  standing
	kept   []standing // ascending, the first at the beginning
	ahead  []storage.Sealed
	last   uint64 // event of the log; 0 while it is not known
}

// standing is a place in the log.
type standing struct {
	at       uint64 // events taken
	replayer *events.Replayer
	watcher  Watcher
	event    *events.Event    // the last that was taken
	mismatch *events.Mismatch // of the event behind at: nobody goes past it
}

const (
	keepEvery = 1000 // events between two kept places, at least
	keepMost  = 16   // places: each is as large as the run has stages
)

// NewWalk stands before the first event of a run. The watcher may be nil.
func NewWalk(ctx context.Context, s Source, id events.ID, w Watcher) (*Walk, error) {
	row, err := s.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	g, err := storage.ReadGraph(ctx, s, row.Plan)
	if err != nil {
		return nil, err
	}
	walk := &Walk{source: s, id: id, stand: standing{replayer: events.NewReplayer(g), watcher: w}}
	walk.kept = []standing{walk.stand.clone()}
	return walk, nil
}

func (s *standing) clone() standing {
	c := *s
	c.replayer = s.replayer.Clone()
	if s.watcher != nil {
		c.watcher = s.watcher.Clone()
	}
	return c
}

// At gives how many events were taken.
func (w *Walk) At() uint64 { return w.stand.at }

// Event gives the event that was taken last; nil before the first.
func (w *Walk) Event() *events.Event { return w.stand.event }

// Run gives the state after that event.
func (w *Walk) Run() *events.Run { return w.stand.replayer.Run() }

// Due gives what the engine would record next by itself.
func (w *Walk) Due() []events.Decision { return w.stand.replayer.Due() }

// Watcher gives what the walk's watcher has become here.
func (w *Walk) Watcher() Watcher { return w.stand.watcher }

// Mismatch gives the mismatch that the walk stands before, or nil. It goes no further.
func (w *Walk) Mismatch() *events.Mismatch { return w.stand.mismatch }

// Forward takes the next event; false when there is none, or when it is not what the engine would write.
func (w *Walk) Forward(ctx context.Context) (bool, error) {
	if w.stand.mismatch != nil || w.last > 0 && w.stand.at >= w.last {
		return false, nil
	}
	e, err := w.next(ctx)
	if err != nil || e == nil {
		return false, err
	}
	s := &w.stand
	if s.mismatch = s.replayer.Step(&e.Event, e.Encoded); s.mismatch != nil {
		return false, nil
	}
	s.at, s.event = e.Sequence, &e.Event
	if s.watcher != nil {
		s.watcher.See(s.event, s.replayer.Run())
	}
	if s.at >= w.kept[len(w.kept)-1].at+w.stride() {
		w.keep()
	}
	return true, nil
}

// next gives the event behind the place.
func (w *Walk) next(ctx context.Context) (*storage.Sealed, error) {
	if len(w.ahead) == 0 || w.ahead[0].Sequence > w.stand.at+1 || w.ahead[len(w.ahead)-1].Sequence <= w.stand.at {
		read, err := w.source.Events(ctx, w.id, w.stand.at, scanPage)
		if err != nil {
			return nil, err
		}
		if len(read) == 0 {
			w.last = w.stand.at
			return nil, nil //nolint:nilnil // documented: the end
		}
		w.ahead = read
	}
	return &w.ahead[w.stand.at+1-w.ahead[0].Sequence], nil
}

// stride grows with the number of kept places.
func (w *Walk) stride() uint64 {
	if len(w.kept) < 2 {
		return keepEvery
	}
	return w.kept[1].at
}

// keep keeps the place. When there are too many, every second one goes.
func (w *Walk) keep() {
	w.kept = append(w.kept, w.stand.clone())
	if len(w.kept) < keepMost {
		return
	}
	half := w.kept[:1]
	for i := 2; i < len(w.kept); i += 2 {
		half = append(half, w.kept[i])
	}
	clear(w.kept[len(half):])
	w.kept = half
}

// Goto goes to the place behind an event, as far as the log agrees.
func (w *Walk) Goto(ctx context.Context, at uint64) error {
	if at < w.stand.at {
		i := len(w.kept) - 1
		for w.kept[i].at > at {
			i--
		}
		w.stand = w.kept[i].clone()
	}
	for w.stand.at < at {
		if moved, err := w.Forward(ctx); err != nil || !moved {
			return err
		}
	}
	return nil
}

// Back goes to the place before the last event.
func (w *Walk) Back(ctx context.Context) error {
	if w.stand.at == 0 {
		return nil
	}
	return w.Goto(ctx, w.stand.at-1)
}

// End goes as far as the log agrees, or goes.
func (w *Walk) End(ctx context.Context) error { return w.Goto(ctx, ^uint64(0)) }
