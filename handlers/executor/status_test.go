package executor

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// TestAnExitThatNobodySawIsNoSuccess: something else in the engine's process collects the stage's exit status.
func TestAnExitThatNobodySawIsNoSuccess(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"exit 3", "exit 0"} {
		c := newCall(t, script)
		c.Started = func(pid int) {
			if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
				t.Error(err)
			}
		}
		if _, failure := run(t, c); failure == nil || failure.Class != events.Lost {
			t.Errorf("%s: %+v", script, failure)
		}
	}
}
