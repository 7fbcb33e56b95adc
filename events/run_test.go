package events

import (
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// sameRun compares two folded states, down to what is not exported; the queues may hold entries that were passed over.
func sameRun(a, b *Run) string {
	return cmp.Diff(a, b, cmp.AllowUnexported(Run{}, Stand{}), cmpopts.IgnoreFields(Run{}, "Graph", "ready", "doomed", "sweep"))
}
