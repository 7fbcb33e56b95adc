package prune

import (
	"context"
	"slices"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// family is which runs are kept, by what binds them to each other.
type family struct {
	kept       map[events.ID]bool
	doomed     []events.ID // that lose what is theirs, oldest first
	gone       bool        // some runs are not kept
	deliveries map[events.ID]delivery
}

// delivery is whose it is: a run's that came from it, or nobody's, and then it is kept.
type delivery struct {
	kept bool
	run  events.ID
}

const page = 1000 // rows and events that are read at once

// readFamily decides which runs are kept.
func readFamily(ctx context.Context, log Log, before int64) (*family, error) {
	f := &family{kept: map[events.ID]bool{}, deliveries: map[events.ID]delivery{}}
	bound := map[events.ID][]events.ID{} // a run, to those that are kept with it
	candidates := map[events.ID]bool{}
	at := storage.Page{Limit: page}
	for {
		rows, err := log.Runs(ctx, storage.RunFilter{Page: at})
		if err != nil {
			return nil, err
		}
		for i := range rows {
			r := &rows[i]
			at.After = r.ID
			switch {
			case r.Pruned > 0:
				f.gone = true
				continue
			case r.State.Terminal() && r.Ended < before:
				candidates[r.ID] = true
			default:
				f.kept[r.ID] = true
			}
			for _, other := range []events.ID{r.Forked, r.Parent} {
				if !other.IsZero() {
					bound[r.ID], bound[other] = append(bound[r.ID], other), append(bound[other], r.ID)
				}
			}
		}
		if len(rows) < page {
			break
		}
	}
	f.gone = f.gone || len(candidates) > 0
	if !f.gone {
		return f, nil
	}
	if err := f.readOwners(ctx, log, bound); err != nil {
		return nil, err
	}
	f.close(bound, candidates)
	return f, f.keepDeliveries(ctx, log)
}

// readOwners reads from the log whose results were taken over, and what became of deliveries.
func (f *family) readOwners(ctx context.Context, log Log, bound map[events.ID][]events.ID) error {
	return scan(ctx, log, func(e *storage.Sealed) error {
		switch {
		case e.Type <= events.DeliveryImported:
			d := f.deliveries[e.Stream]
			if !e.Data.Run.IsZero() {
				d.run = e.Data.Run
			}
			f.deliveries[e.Stream] = d
		case !e.Data.Cached.IsZero():
			bound[e.Stream] = append(bound[e.Stream], e.Data.Cached) // and not the other way round
		}
		return nil
	})
}

// close keeps every candidate that something kept is bound to.
func (f *family) close(bound map[events.ID][]events.ID, candidates map[events.ID]bool) {
	todo := make([]events.ID, 0, len(f.kept))
	for id := range f.kept {
		todo = append(todo, id)
	}
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, other := range bound[id] {
			if candidates[other] {
				delete(candidates, other)
				f.kept[other] = true
				todo = append(todo, other)
			}
		}
	}
	for id := range candidates {
		f.doomed = append(f.doomed, id)
	}
	slices.SortFunc(f.doomed, func(a, b events.ID) int { return slices.Compare(a[:], b[:]) })
}

// keepDeliveries keeps those that became no run, those of kept runs, and those that a kept run came from.
func (f *family) keepDeliveries(ctx context.Context, log Log) error {
	for id, d := range f.deliveries {
		d.kept = d.run.IsZero() || f.kept[d.run]
		f.deliveries[id] = d
	}
	return scan(ctx, log, func(e *storage.Sealed) error {
		if e.Type == events.RunCreated && f.kept[e.Stream] && !e.Data.Delivery.IsZero() {
			d := f.deliveries[e.Data.Delivery]
			d.kept = true
			f.deliveries[e.Data.Delivery] = d
		}
		return nil
	})
}

// keeps reports whether what the events of the stream refer to is needed.
func (f *family) keeps(stream events.ID) bool {
	if !f.gone || f.kept[stream] {
		return true
	}
	return f.deliveries[stream].kept
}

// scan gives every event of the log.
func scan(ctx context.Context, log Log, give func(*storage.Sealed) error) error {
	records := make([]storage.Record, page)
	for after := int64(0); ; {
		n, err := log.Scan(ctx, after, records)
		if err != nil {
			return err
		}
		for i := range n {
			after = records[i].Position
			if err := give(&records[i].Sealed); err != nil {
				return err
			}
		}
		if n < len(records) {
			return nil
		}
	}
}

// each gives every event of a stream.
func each(ctx context.Context, log Log, stream events.ID, give func(*storage.Sealed) error) error {
	for e, err := range storage.Stream(ctx, log, stream, 0) {
		if err == nil {
			err = give(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
