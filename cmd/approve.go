package cmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/web"
)

func (a *app) approveCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "approve RUN STAGE[#ITEM]", Args: a.arguments(2, 2), ValidArgsFunction: a.completeRuns}, "approve")
	reason := c.Flags().String("reason", "", "flag.reason")
	fields := c.Flags().StringArray("field", nil, "flag.field")
	c.RunE = func(c *cobra.Command, args []string) error {
		given, err := a.pairs("--field", *fields)
		if err != nil {
			return err
		}
		return a.answer(c.Context(), args, web.Answer{By: by(*reason), Approve: true, Fields: given})
	}
	return c
}

func (a *app) rejectCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "reject RUN STAGE[#ITEM]", Args: a.arguments(2, 2), ValidArgsFunction: a.completeRuns}, "reject")
	reason := c.Flags().String("reason", "", "flag.reason")
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.answer(c.Context(), args, web.Answer{By: by(*reason)})
	}
	return c
}

// answer gives a person's answer to a stage that waits for it, and shows the run. Where no other process has the engine,
// this one carries the run on as far as it goes without a person.
func (a *app) answer(ctx context.Context, args []string, answer web.Answer) error {
	id, err := a.runNamed(ctx, args[0])
	if err != nil {
		return err
	}
	at, err := a.place(args[1])
	if err != nil {
		return err
	}
	answered := false
	return a.steer(ctx, func(s session) error {
		if !answered {
			if err := s.AnswerStage(ctx, id, at, answer); err != nil {
				return a.refusal(err, id, args[1])
			}
			answered = true
		}
		if l, alone := s.(*local); alone {
			return a.carryOn(ctx, l, id)
		}
		v, err := loadView(ctx, s.reader(), id, a.logsDir())
		if err != nil {
			return err
		}
		return a.printRun(v, false)
	})
}

// carryOn shows a run until it has ended or waits for people only. An interrupt leaves it as it is.
func (a *app) carryOn(ctx context.Context, l *local, id events.ID) error {
	v, err := openView(ctx, l.reader(), id, a.logsDir())
	if err != nil {
		return err
	}
	p := a.newProgress()
	p.after = 1 << 62 // what was before is shown at the end
	for err == nil {
		if err = v.advance(context.WithoutCancel(ctx), l.reader(), func(e *events.Event) { p.event(v, e) }); err != nil {
			return err
		}
		if v.over() || v.waitsForPeople() {
			break
		}
		p.after = 0
		p.show(ctx, v)
		err = l.wait(ctx)
	}
	p.end()
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if err := a.printRun(v, false); err != nil || v.run.State.Terminal() {
		return err
	}
	a.tell("answer.waits", lang.Data{"Run": id.String()})
	return nil
}

// waitsForPeople reports whether nothing of the run moves until a person answers.
func (v *view) waitsForPeople() bool {
	asked := false
	for i := range v.run.Stages {
		switch s := &v.run.Stages[i]; {
		case s.State == events.Running && !v.run.Expanded(i), s.State == events.Pending && s.Queued && s.Waits != waitsApproval:
			return false
		case s.State == events.Pending && s.Queued:
			asked = true
		}
	}
	return asked
}
