package prune

import (
	"context"
	"errors"
	"fmt"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// CodeMissing is the problem of an artifact that an event refers to and that is not there.
const CodeMissing = "E_ARTIFACT_MISSING"

// Check names every artifact that the log refers to and that is missing, once, with the first place that refers to it. Runs
// that were pruned may lack theirs. The error is only that of a check which could not go on.
func Check(ctx context.Context, log Log, files Artifacts, report func(storage.Problem)) error {
	family, err := readFamily(ctx, log, 0)
	if err != nil {
		return fmt.Errorf("check artifacts that are referred to: %w", err)
	}
	m := &mark{log: log, files: files, family: family}
	seen := map[events.Digest]bool{}
	err = scan(ctx, log, func(e *storage.Sealed) error {
		if !family.keeps(e.Stream) {
			return nil
		}
		return m.walk(ctx, &e.Event, func(d events.Digest, maybe bool) {
			if whole, known := seen[d]; known && (whole || maybe) {
				return
			}
			_, err := files.Stat(d)
			missing := errors.Is(err, storage.ErrNotFound)
			seen[d] = !missing || !maybe // what may be no artifact is looked at again when something says that it is one
			if missing && !maybe {
				report(storage.Problem{Code: CodeMissing, Place: place(&e.Event), What: "refers to artifact " + d.String() + ", which is not there"})
			}
		})
	})
	if err != nil {
		return fmt.Errorf("check artifacts that are referred to: %w", err)
	}
	return nil
}

func place(e *events.Event) string {
	if e.Type <= events.DeliveryImported {
		return fmt.Sprintf("delivery %s event %d", e.Stream, e.Sequence)
	}
	text := fmt.Sprintf("run %s event %d", e.Stream, e.Sequence)
	if e.Data.Stage != "" {
		text += " stage " + (&events.Stage{Name: e.Data.Stage}).Label(e.Data.Item)
	}
	return text
}
