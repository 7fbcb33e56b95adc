package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// launch is one way of starting `true`: bare, or as an attempt in a mode.
type launch struct {
	mode, network string
	bound         bound
	took          times
}

const bare = "bare"

// isolation: an attempt of `true` in each mode beside a bare os/exec of it. All take turns, in an order that moves on and
// turns round, so that neither a drift of the machine nor the rhythm of its scheduler favours any.
func isolation(ctx context.Context, m *meter) (err error) {
	dir, err := filepath.Abs(m.dir())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	shell := executor.NewShell(executor.Settings{Owner: "bench-" + strconv.Itoa(os.Getpid()), Spare: filepath.Join(dir, "spare")})
	ways := []launch{{mode: bare}, {mode: "off"}, {mode: "observe", bound: atMost(2)}, {mode: "enforce", network: "none", bound: atMost(1.6)}}
	const warm = 20 // the first ones fill caches
	for i := range warm + pick(m, 50, 600) {
		for n := range ways {
			if i%2 == 1 {
				n = len(ways) - 1 - n
			}
			l := &ways[(i/2+n)%len(ways)]
			took, err := l.once(ctx, shell, filepath.Join(dir, l.mode, strconv.Itoa(i)))
			if err != nil {
				return err
			}
			if i >= warm {
				l.took = append(l.took, took)
			}
		}
	}
	for _, l := range ways[1:] {
		m.add(Figure{Name: "launch_" + l.mode + "_vs_exec", Value: ms(l.took.p50()), Unit: "ms", LimitValue: ms(ways[0].took.p50()), Samples: len(l.took),
			P50: ms(l.took.p50()), P99: ms(l.took.p99())}, l.bound)
	}
	return nil
}

func (l *launch) once(ctx context.Context, shell *executor.Shell, dir string) (time.Duration, error) {
	begin := time.Now()
	if l.mode == bare {
		if err := exec.CommandContext(ctx, "sh", "-c", "true").Run(); err != nil {
			return 0, fmt.Errorf("exec limit: %w", err)
		}
		return time.Since(begin), nil
	}
	_, failure := shell.Execute(ctx, &executor.Call{Run: events.ID{1}, Pipeline: "bench", Stage: "only", Attempt: 1, Key: "bench",
		Dir: dir, LogDir: filepath.Join(dir, "logs"), With: json.RawMessage(`{"script":"true"}`), Timeout: time.Minute,
		Isolation: l.mode, Network: l.network})
	took := time.Since(begin)
	if failure != nil {
		return 0, fmt.Errorf("launch in the mode %s: %s", l.mode, failure.Reason)
	}
	return took, nil
}
