package cmd

import (
	"context"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// The executors are made before the engine that they start child runs on.

// StartChild implements executor.Runs.
func (n *node) StartChild(ctx context.Context, c executor.Child) (events.ID, error) {
	return n.engine.StartChild(ctx, c)
}

// WaitChild implements executor.Runs.
func (n *node) WaitChild(ctx context.Context, run events.ID) (executor.ChildEnd, error) {
	return n.engine.WaitChild(ctx, run)
}

// CancelChild implements executor.Runs.
func (n *node) CancelChild(ctx context.Context, run events.ID, reason string) error {
	return n.engine.CancelChild(ctx, run, reason)
}
