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

// launch is one way of starting `true`.
type launch struct {
	isolation, network string
	bound              bound
	took               times
}

// isolation: an attempt of `true` in each mode beside a bare os/exec of it, all in turn, so that a drift of the machine
// meets them alike.
func isolation(ctx context.Context, m *meter) (err error) {
	dir, err := filepath.Abs(m.dir())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	shell := executor.NewShell(executor.Settings{Owner: "bench-" + strconv.Itoa(os.Getpid()), Spare: filepath.Join(dir, "spare")})
	modes := []launch{{"off", "", bound{}, nil}, {"observe", "", atMost(2), nil}, {"enforce", "none", atMost(1.6), nil}}
	var bare times
	const warm = 20 // the first ones fill caches
	for i := range warm + pick(m, 50, 600) {
		for n := range modes {
			l := &modes[n]
			took, err := l.once(ctx, shell, filepath.Join(dir, l.isolation, strconv.Itoa(i)))
			if err != nil {
				return err
			}
			if i >= warm {
				l.took = append(l.took, took)
			}
		}
		begin := time.Now()
		if err := exec.CommandContext(ctx, "sh", "-c", "true").Run(); err != nil {
			return fmt.Errorf("exec limit: %w", err)
		}
		if i >= warm {
			bare = append(bare, time.Since(begin))
		}
	}
	for _, l := range modes {
		m.add(Figure{Name: "launch_" + l.isolation + "_vs_exec", Value: ms(l.took.p50()), Unit: "ms", LimitValue: ms(bare.p50()), Samples: len(l.took),
			P50: ms(l.took.p50()), P99: ms(l.took.p99())}, l.bound)
	}
	return nil
}

func (l *launch) once(ctx context.Context, shell *executor.Shell, dir string) (time.Duration, error) {
	begin := time.Now()
	_, failure := shell.Execute(ctx, &executor.Call{Run: events.ID{1}, Pipeline: "bench", Stage: "only", Attempt: 1, Key: "bench",
		Dir: dir, LogDir: filepath.Join(dir, "logs"), With: json.RawMessage(`{"script":"true"}`), Timeout: time.Minute,
		Isolation: l.isolation, Network: l.network})
	took := time.Since(begin)
	if failure != nil {
		return 0, fmt.Errorf("launch in the mode %s: %s", l.isolation, failure.Reason)
	}
	return took, nil
}
