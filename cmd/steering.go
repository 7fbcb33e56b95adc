package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/router"
	"github.com/apollo-11/apollo/storage"
)

// by says that the user of this process wants something. Another process finds out by itself who asks.
func by(reason string) web.By { return web.By{Actor: web.UserName(os.Geteuid()), Reason: reason} }

// refusals are what people cannot have: the status and the exit code that say so, and the code where the text has none.
var refusals = []struct {
	is           error
	status, exit int
	code         string
}{
	{storage.ErrNotFound, http.StatusNotFound, exitNotFound, "E_NOT_FOUND"},
	{router.ErrNoStage, http.StatusNotFound, exitNotFound, "E_REF"},
	{router.ErrEnded, http.StatusConflict, exitConflict, "E_RUN_ENDED"},
	{router.ErrNotEnded, http.StatusConflict, exitConflict, "E_NOT_ENDED"},
	{router.ErrNotFailed, http.StatusConflict, exitConflict, "E_NOT_FAILED"},
	{router.ErrNotWaiting, http.StatusConflict, exitConflict, "E_NOT_WAITING"},
	{router.ErrNoGate, http.StatusConflict, exitConflict, "E_NO_GATE"},
	{executor.ErrApprover, http.StatusForbidden, exitAuth, ""},
	{executor.ErrForm, http.StatusUnprocessableEntity, exitUsage, ""},
}

func refused(err error) error {
	for _, r := range refusals {
		if errors.Is(err, r.is) {
			return &web.ErrStatus{Status: r.status, Err: &exitError{r.exit, r.code, err}}
		}
	}
	return err
}

// CancelRun implements web.Steering.
func (n *node) CancelRun(ctx context.Context, run events.ID, by web.By) error {
	return refused(n.engine.Cancel(ctx, run, by.Actor, by.Reason))
}

// ResumeRun implements web.Steering.
func (n *node) ResumeRun(ctx context.Context, run events.ID, by web.By, open ...web.Place) error {
	openings := make([]router.Opening, len(open))
	for i, p := range open {
		openings[i] = router.Opening(p)
	}
	return refused(n.engine.Resume(ctx, run, by.Actor, by.Reason, openings...))
}

// RerunRun implements web.Steering. Parameters that are given lie over those of the run.
func (n *node) RerunRun(ctx context.Context, run events.ID, r web.RerunRequest) (trigger.Receipt, error) {
	again := router.Again{From: r.From, Key: r.Key, Reason: r.Reason, Actor: r.Actor, Fresh: r.NoCache}
	if replaced := len(r.Input) > 0 || r.Empty; replaced || len(r.Params) > 0 {
		v, err := loadView(ctx, n.store, run, "")
		if err != nil {
			return trigger.Receipt{}, refused(err)
		}
		if replaced {
			again.Input = &router.Input{Content: r.Input, Name: r.InputName, File: readsFile(v.run.Graph.Plan)}
		}
		if len(r.Params) > 0 {
			again.Params, err = paramsOver(v.run, r.Params)
		}
		if err != nil {
			return trigger.Receipt{}, err
		}
	}
	receipt, err := n.engine.Rerun(ctx, run, again)
	return receipt, refused(err)
}

// paramsOver lays parameters given as text over those of a run.
func paramsOver(r *events.Run, texts map[string]string) (json.RawMessage, error) {
	given := map[string]json.RawMessage{}
	if len(r.Params) > 0 {
		if err := json.Unmarshal(r.Params, &given); err != nil {
			return nil, fmt.Errorf("read the run's parameters: %w", err)
		}
	}
	plan := r.Graph.Plan
	for name, text := range texts {
		given[name] = configs.ParamFromText(plan, name, text)
	}
	resolved, problems := configs.ResolveParams(plan, given)
	if problems.HasErrors() {
		return nil, &web.ErrStatus{Status: http.StatusUnprocessableEntity, Err: &exitError{exitUsage, "", errors.New(problemLine(problems[0]))}}
	}
	return json.Marshal(resolved)
}

// AnswerStage implements web.Steering.
func (n *node) AnswerStage(ctx context.Context, run events.ID, at web.Place, a web.Answer) error {
	asked, err := n.asked(ctx, run, at)
	if err != nil {
		return refused(err)
	}
	answer := router.Answer{Stage: at.Stage, Item: at.Item, Approve: a.Approve, Actor: a.Actor, Reason: a.Reason}
	if err := mayAnswer(asked, a.Actor); err != nil {
		return refused(err)
	}
	if a.Approve {
		if answer.Form, err = fillForm(asked, a.Fields); err != nil {
			return refused(err)
		}
	}
	return refused(n.engine.Answer(ctx, run, answer, func(*events.Stage) error { return mayAnswer(asked, a.Actor) }))
}

// asked gives what a stage of a run asks, as the run's own plan says.
func (n *node) asked(ctx context.Context, run events.ID, at web.Place) (settings executor.ApprovalSettings, err error) {
	row, err := n.store.Run(ctx, run)
	if err != nil {
		return settings, err
	}
	g, err := storage.ReadGraph(ctx, n.store, row.Plan)
	if err != nil {
		return settings, err
	}
	i, ok := g.Index(at.Stage)
	if !ok {
		return settings, fmt.Errorf("%w: %s", router.ErrNoStage, at.Stage)
	}
	if g.Plan.Stages[i].Executor != "approval" {
		return settings, fmt.Errorf("%w: %s is no approval", router.ErrNotWaiting, at.Stage)
	}
	return executor.ReadApproval(&g.Plan.Stages[i])
}

// mayAnswer says whether a person may answer. Somebody must stand for it: a connection that does not say who is there
// may not.
func mayAnswer(s executor.ApprovalSettings, actor string) error {
	if actor == "" {
		return fmt.Errorf("%w: nobody knows who asks", executor.ErrApprover)
	}
	return s.Allows(actor)
}

// fillForm reads the fields of a form, given as text.
func fillForm(s executor.ApprovalSettings, texts map[string]string) (json.RawMessage, error) {
	given := make(map[string]json.RawMessage, len(texts))
	for name, text := range texts {
		given[name] = configs.ParamFromText(&events.Plan{Params: s.Form}, name, text)
	}
	return s.Fill(given)
}

// Approvals implements web.Steering.
func (n *node) Approvals(ctx context.Context, p storage.Page) ([]web.Approval, error) {
	return approvals(ctx, n.store, p)
}

// approvals gives the stages that wait for a person, the oldest run first. A page is of runs: those of one run are never
// parted.
func approvals(ctx context.Context, s storage.Store, p storage.Page) (all []web.Approval, err error) {
	page := storage.Page{After: p.After}
	for {
		rows, err := s.Unfinished(ctx, page)
		if err != nil || len(rows) == 0 {
			return all, err
		}
		for i := range rows {
			if all, err = appendApprovals(ctx, s, rows[i].ID, all); err != nil {
				return nil, err
			}
			if len(all) >= cmp.Or(p.Limit, 50) {
				return all, nil
			}
		}
		page.After = rows[len(rows)-1].ID
	}
}

func appendApprovals(ctx context.Context, s storage.Store, run events.ID, all []web.Approval) ([]web.Approval, error) {
	rows, err := s.Stages(ctx, run)
	if err != nil || !anyWaits(rows) {
		return all, err
	}
	v, err := loadView(ctx, s, run, "")
	if err != nil {
		return nil, err
	}
	for i := range v.run.Stages {
		if st := &v.run.Stages[i]; st.State != events.Pending || st.Waits != waitsApproval {
			continue
		}
		one, err := v.approval(i)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

const waitsApproval = "approval"

func anyWaits(rows []storage.StageRow) bool {
	for i := range rows {
		if rows[i].State == events.Pending && rows[i].Waits == waitsApproval {
			return true
		}
	}
	return false
}

// approval says what a stage asks that waits for a person.
func (v *view) approval(i int) (web.Approval, error) {
	s, st := &v.run.Stages[i], v.run.StageOf(i)
	asked, err := executor.ReadApproval(st)
	if err != nil {
		return web.Approval{}, err
	}
	one := web.Approval{Run: v.run.ID.String(), Pipeline: v.run.Graph.Plan.Pipeline, Stage: st.Name, Item: itemNumber(s), Message: asked.Message,
		Approvers: asked.Approvers, Form: asked.Form, Since: stamp(v.queued[i].since), Due: stamp(s.Due)}
	if one.Approvers == nil {
		one.Approvers = []string{}
	}
	return one, nil
}
