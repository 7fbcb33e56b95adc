package cmd

import (
	"context"
	"errors"
	"strings"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// runNamed finds the run that an argument means.
func (a *app) runNamed(ctx context.Context, name string) (events.ID, error) {
	row, err := a.rowNamed(ctx, name)
	return row.ID, err
}

func (a *app) rowNamed(ctx context.Context, name string) (row storage.RunRow, err error) {
	err = a.reading(ctx, func(s *sqlite.Store) error {
		id, err := a.findRun(ctx, s, name)
		if err == nil {
			row, err = s.Run(ctx, id)
		}
		return err
	})
	return row, err
}

// steer has something done by whoever has the engine. When that process goes away meanwhile, the next one is asked.
func (a *app) steer(ctx context.Context, do func(s session) error, prepare ...func(*node)) error {
	for {
		s, err := a.session(ctx, prepare...)
		if err != nil {
			return err
		}
		err = do(s)
		if left := s.leave(ctx); err == nil && !errors.Is(left, errGone) {
			err = left
		}
		if !errors.Is(err, errGone) {
			return err
		}
	}
}

// hints are the messages that say what to do about a refusal, by its code.
var hints = map[string]string{"E_RUN_ENDED": "error.run_ended", "E_NOT_ENDED": "error.not_ended", "E_NOT_FAILED": "error.not_failed",
	"E_NOT_WAITING": "error.not_waiting", "E_NO_GATE": "error.no_gate", "E_REF": "error.no_stage", "E_APPROVER": "error.approver", "E_FORM": "error.form"}

// refusal says in the user's language what a person cannot have and what to do instead.
func (a *app) refusal(err error, run events.ID, stage string) error {
	if err == nil || errors.Is(err, errGone) {
		return err
	}
	code := codePattern.FindString(err.Error())
	id, known := hints[code]
	if !known {
		return err
	}
	return a.fail(a.exitOfError(err), code, id, lang.Data{"Run": run.String(), "Stage": stage, "Why": strings.TrimPrefix(err.Error(), code+": ")})
}
