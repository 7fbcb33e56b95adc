package cmd

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) approvalsCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "approvals", Args: a.arguments(0, 0)}, "approvals")
	limit, after := a.page(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		p, err := a.pageOf(*limit, *after)
		if err != nil {
			return err
		}
		return a.reading(c.Context(), func(s *sqlite.Store) error {
			all, err := approvals(c.Context(), s, p)
			if err != nil {
				return err
			}
			return a.listApprovals(all)
		})
	}
	return c
}

func (a *app) listApprovals(all []web.Approval) error {
	if len(all) == 0 && a.output == "text" {
		a.tell("approvals.none")
		return nil
	}
	return list(a, all, a.heads("run", "pipeline", "stage", "message", "approvers", "since", "due"), func(w web.Approval) []string {
		who := a.say.T("approval.anybody")
		if len(w.Approvers) > 0 {
			who = strings.Join(w.Approvers, ", ")
		}
		due := ""
		if at, err := time.Parse(time.RFC3339Nano, w.Due); err == nil {
			due = a.say.T("due.in", map[string]any{"In": until(at.UnixNano())})
		}
		since := ""
		if at, err := time.Parse(time.RFC3339Nano, w.Since); err == nil {
			since = a.ago(at.UnixNano())
		}
		return []string{w.Run, w.Pipeline, w.Label(), w.Message, who, since, due}
	})
}
