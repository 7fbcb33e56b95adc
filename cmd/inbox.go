package cmd

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

type inboxJSON struct {
	Delivery    string `json:"delivery"`
	Trigger     string `json:"trigger"`
	Pipeline    string `json:"pipeline"`
	Key         string `json:"key"`
	ReceivedAt  string `json:"received_at"`
	Fate        string `json:"fate"`
	Run         string `json:"run"`
	DuplicateOf string `json:"duplicate_of"`
	Code        string `json:"code"`
	Reason      string `json:"reason"`
}

// fates are what may become of a delivery; the empty one means any.
var fates = []string{"", "run", "duplicate", "held", "rejected", "ignored"}

func (a *app) inboxCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "inbox", Args: a.arguments(0, 0)}, "inbox")
	limit, after := a.page(c)
	pipeline := c.Flags().String("pipeline", "", "flag.pipeline")
	fate := c.Flags().String("fate", "", "flag.fate")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !slices.Contains(fates, *fate) {
			return a.choice("--fate", *fate, strings.Join(fates[1:], ", "))
		}
		p, err := a.pageOf(*limit, *after)
		if err != nil {
			return err
		}
		return a.reading(c.Context(), func(s *sqlite.Store) error {
			return a.listDeliveries(c.Context(), s, storage.DeliveryFilter{Page: p, Pipeline: *pipeline, Fate: *fate})
		})
	}
	return c
}

func (a *app) listDeliveries(ctx context.Context, s *sqlite.Store, f storage.DeliveryFilter) error {
	rows, err := s.Deliveries(ctx, f)
	if err != nil {
		return err
	}
	if len(rows) == 0 && a.output == "text" {
		a.tell("inbox.none")
		return nil
	}
	all := make([]inboxJSON, len(rows))
	received := map[string]int64{}
	for i, d := range rows {
		all[i] = inboxJSON{Delivery: d.ID.String(), Trigger: d.Trigger, Pipeline: d.Pipeline, Key: d.Key, ReceivedAt: stamp(d.Received), Fate: d.Fate,
			Run: d.Run.String(), DuplicateOf: d.First.String(), Code: d.Code, Reason: d.Reason}
		received[all[i].Delivery] = d.Received
	}
	return list(a, all, a.heads("delivery", "trigger", "pipeline", "received", "fate", "run", "why"), func(d inboxJSON) []string {
		why := d.Code
		if d.Code == "" && d.DuplicateOf != "" {
			why = a.say.T("duplicate.of", map[string]any{"ID": d.DuplicateOf})
		} else if d.Reason != "" {
			why = d.Code + " " + d.Reason
		}
		return []string{d.Delivery, d.Trigger, d.Pipeline, a.ago(received[d.Delivery]), a.say.T("fate." + d.Fate), d.Run, why}
	})
}
