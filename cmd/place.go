package cmd

import (
	"strconv"
	"strings"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/handlers/web"
)

// place reads STAGE or STAGE#ITEM.
func (a *app) place(text string) (web.Place, error) {
	stage, number, numbered := strings.Cut(text, "#")
	item, err := strconv.Atoi(number)
	if stage == "" || numbered && (err != nil || item < 1) {
		return web.Place{}, a.usageError("usage.place", lang.Data{"Place": text})
	}
	return web.Place{Stage: stage, Item: item}, nil
}

// mustHave refuses a stage, or an instance, that the run has not; an empty text is none in particular.
func (a *app) mustHave(v *view, text string) error {
	if text == "" {
		return nil
	}
	at, err := a.place(text)
	if err != nil {
		return err
	}
	if _, ok := v.run.Find(at.Stage, at.Item); !ok {
		if _, known := v.run.Graph.Index(at.Stage); known {
			return a.fail(exitNotFound, "E_REF", "error.no_item", lang.Data{"Stage": at.Stage, "Item": at.Item})
		}
		return a.fail(exitNotFound, "E_REF", "error.no_stage", lang.Data{"Stage": at.Stage})
	}
	return nil
}
