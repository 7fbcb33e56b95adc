package bench

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apollo-11/apollo/configs"
)

func perSecond(n int64, took time.Duration) float64 { return float64(n) / took.Seconds() }

// discard removes a store that was measured. One that stays takes nothing but space.
func discard(dir string) { _ = os.RemoveAll(dir) }

// engine: stage completions a second with many five-stage runs in flight; the same store then gives the figures of
// size, replay and a start with a long log.
func engine(ctx context.Context, m *meter) error {
	var d Done
	var dir string
	runs := pick(m, 6_000, 77_000)
	limit, void, err := m.steady(func() (err error) {
		if dir != "" {
			discard(dir)
		}
		dir = m.dir()
		d, err = m.subject(ctx, dir, Load{Kind: "chains", Runs: runs, Flight: 512, Hold: pick(m, 50, 1000)})
		return err
	})
	if err != nil {
		return err
	}
	defer discard(dir)
	m.add(Figure{Name: "engine_vs_commit", Value: perSecond(d.Count, d.Took), Unit: "stages/s", LimitValue: limit.perSecond, Samples: int(d.Count), Void: void}, atLeast(2.5))
	size, err := sizeOf(dir, runs)
	if err != nil {
		return err
	}
	m.add(Figure{Name: "five_stage_run_bytes", Value: size, Unit: "bytes", Samples: runs}, atMost(6000))
	if err := replayed(ctx, m, dir); err != nil {
		return err
	}
	return m.startLong(ctx, dir)
}

// sizeOf gives the bytes on disk a run, everything in.
func sizeOf(dir string, runs int) (float64, error) {
	var total int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return float64(total) / float64(runs), err
}

func replayed(ctx context.Context, m *meter, dir string) error {
	before, rows, err := measureScan(filepath.Join(dir, "apollo.db"))
	if err != nil {
		return err
	}
	n, took, err := m.Replay(ctx, dir)
	if err != nil {
		return err
	}
	after, _, err := measureScan(filepath.Join(dir, "apollo.db"))
	if err != nil {
		return err
	}
	f := Figure{Name: "replay_vs_scan", Value: perSecond(int64(n), took), Unit: "events/s", LimitValue: (before + after) / 2, Samples: rows}
	if d := drift(before, after); d > driftLimit {
		f.Void = fmt.Sprintf("the limit drifted by %.0f %%", d*100)
	}
	m.add(f, atLeast(0.35))
	m.add(Figure{Name: "replay_events_per_second", Value: f.Value, Unit: "events/s", Samples: n}, atLeast(100_000))
	return nil
}

// startLong: from exec to ready with a long log and unfinished runs, all taken up again.
func (m *meter) startLong(ctx context.Context, dir string) error {
	var all times
	for range pick(m, 2, 5) {
		s, err := m.serve(ctx, dir)
		if err != nil {
			return err
		}
		all = append(all, s.ready)
		if err := s.stop(); err != nil {
			return err
		}
	}
	m.add(Figure{Name: "startup_1m_ms", Value: ms(all.p50()), Unit: "ms", Samples: len(all), P50: ms(all.p50()), P99: ms(all.p99())}, atMost(500))
	return nil
}

// chain: the same, one run at a time, and the time from one stage's end to the next one's start.
func chain(ctx context.Context, m *meter) error {
	var d Done
	limit, void, err := m.steady(func() (err error) {
		dir := m.dir()
		defer discard(dir)
		d, err = m.subject(ctx, dir, Load{Kind: "chains", Runs: pick(m, 300, 2000), Flight: 1})
		return err
	})
	if err != nil {
		return err
	}
	m.add(Figure{Name: "chain_vs_commit", Value: perSecond(d.Count, d.Took), Unit: "stages/s", LimitValue: limit.perSecond, Samples: int(d.Count), Void: void}, atLeast(0.4))
	m.add(Figure{Name: "hop_vs_commit", Value: ms(d.P50), Unit: "ms", LimitValue: ms(limit.times.p50()), Samples: d.Samples, P50: ms(d.P50), P99: ms(d.P99), Void: void}, atMost(2.5))
	m.add(Figure{Name: "hop_p99_vs_commit_p99", Value: ms(d.P99), Unit: "ms", LimitValue: ms(limit.times.p99()), Samples: d.Samples, P50: ms(d.P50), P99: ms(d.P99), Void: void}, atMost(4))
	return nil
}

// graphs: is a run's cost linear in its stages?
func graphs(ctx context.Context, m *meter) error {
	for _, shape := range []struct {
		name string
		wide bool
	}{{"fanout_10k_vs_1k", true}, {"chain_10k_vs_1k", false}} {
		var took [2]time.Duration
		for i, stages := range []int{1000, 10_000} {
			dir := m.dir()
			d, err := m.subject(ctx, dir, Load{Kind: "graph", Runs: pick(m, 1, 3), Stages: stages, Wide: shape.wide})
			discard(dir)
			if err != nil {
				return err
			}
			took[i] = d.Took
		}
		m.add(Figure{Name: shape.name, Value: ms(took[1]), Unit: "ms", LimitValue: ms(took[0]), Samples: pick(m, 1, 3)}, atMost(11))
	}
	return nil
}

// large: what a definition of ten thousand stages takes to validate, and a run over ten thousand items of memory.
func large(ctx context.Context, m *meter) error {
	const stages = 10_000
	var text strings.Builder
	text.WriteString("name: large\nstages:\n a0: {run: ls}\n")
	for i := 1; i < stages; i++ { // an eighth of them wait for others: more does not fit into the largest file
		fmt.Fprintf(&text, " a%s: {run: ls", strconv.FormatInt(int64(i), 36))
		if i%8 == 0 {
			fmt.Fprintf(&text, ",needs: [a%s]", strconv.FormatInt(int64(i-1), 36))
		}
		text.WriteString("}\n")
	}
	var all times
	for range pick(m, 1, 5) {
		begin := time.Now()
		if p, problems := configs.Parse("large.yaml", []byte(text.String()), "", configs.Options{}); p == nil {
			return problems
		}
		all = append(all, time.Since(begin))
	}
	m.add(Figure{Name: "validate_10k_ms", Value: ms(all.p50()), Unit: "ms", Samples: len(all), P50: ms(all.p50()), P99: ms(all.p99())}, atMost(1000))
	d, err := m.load(ctx, Load{Kind: "graph", Runs: 1, Stages: pick(m, 1000, 10_000) + 1, Wide: true, Form: "item"})
	if err != nil {
		return err
	}
	m.add(Figure{Name: "foreach_10k_mib", Value: d.Peak, Unit: "MiB", Samples: 1}, atMost(300))
	return nil
}

// language: what one more condition, retry or item costs, beside one more plain stage; the four in turn, so that a drift
// of the machine meets them alike.
func language(ctx context.Context, m *meter) error {
	stages, forms := pick(m, 1000, 5000), []string{"", "condition", "retry", "item"}
	took := make([]times, len(forms))
	for range pick(m, 1, 5) {
		for i, form := range forms {
			d, err := m.load(ctx, Load{Kind: "graph", Runs: 1, Stages: stages, Wide: true, Form: form})
			if err != nil {
				return err
			}
			took[i] = append(took[i], d.Took)
		}
	}
	plain := ms(took[0].p50())
	for i, name := range []string{"", "condition_vs_stage", "retry_vs_stage", "item_vs_stage"} {
		if i == 0 {
			continue
		}
		value := ms(took[i].p50())
		if forms[i] != "item" { // the stage itself is there too
			value -= plain
		}
		m.add(Figure{Name: name, Value: max(0, value), Unit: "ms", LimitValue: plain, Samples: len(took[i])}, atMost(1.5))
	}
	return nil
}

func webhook(ctx context.Context, m *meter) error {
	var many, one Done
	limit, void, err := m.steady(func() (err error) {
		if many, err = m.load(ctx, Load{Kind: "webhooks", Connect: 32, Hold: 1, For: pick(m, time.Second, 4*time.Second)}); err != nil {
			return err
		}
		one, err = m.load(ctx, Load{Kind: "webhooks", Connect: 1, Hold: 1, For: pick(m, 500*time.Millisecond, 2*time.Second)})
		return err
	})
	if err != nil {
		return err
	}
	m.add(Figure{Name: "webhook_vs_commit", Value: perSecond(many.Accepted, many.Took), Unit: "posts/s", LimitValue: limit.perSecond, Samples: many.Samples, P50: ms(many.P50), P99: ms(many.P99), Void: void}, atLeast(2))
	m.add(Figure{Name: "webhook_ack_vs_commit", Value: ms(one.P50), Unit: "ms", LimitValue: ms(limit.times.p50()), Samples: one.Samples, P50: ms(one.P50), P99: ms(one.P99), Void: void}, atMost(3))
	storm, err := m.load(ctx, Load{Kind: "posts", Connect: pick(m, 200, 1000), Runs: pick(m, 2000, 10_000)})
	if err != nil {
		return err
	}
	m.add(Figure{Name: "webhook_lost", Value: float64(storm.Count), Unit: "posts", Samples: int(storm.Accepted)}, bound{text: "= 0", most: 0.5})
	m.add(Figure{Name: "webhook_p99_ms", Value: ms(storm.P99), Unit: "ms", Samples: storm.Samples, P50: ms(storm.P50), P99: ms(storm.P99)}, atMost(3000))
	first, err := m.load(ctx, Load{Kind: "process", Runs: pick(m, 40, 200)})
	if err != nil {
		return err
	}
	m.add(Figure{Name: "webhook_to_process_ms", Value: ms(first.P50), Unit: "ms", Samples: first.Samples, P50: ms(first.P50), P99: ms(first.P99)}, atMost(5))
	return nil
}

// load is a subject whose store nobody needs afterwards.
func (m *meter) load(ctx context.Context, l Load) (Done, error) {
	dir := m.dir()
	defer discard(dir)
	return m.subject(ctx, dir, l)
}

func file(ctx context.Context, m *meter) error {
	d, err := m.load(ctx, Load{Kind: "files", Runs: pick(m, 50, 300)})
	if err != nil {
		return err
	}
	m.add(Figure{Name: "file_drop_ms", Value: ms(d.P50), Unit: "ms", Samples: d.Samples, P50: ms(d.P50), P99: ms(d.P99)}, atMost(5))
	return nil
}

// shell: `true` as a stage beside a bare os/exec of it.
func shell(ctx context.Context, m *meter) error {
	span := pick(m, time.Second, 3*time.Second)
	before, err := measureExec(ctx, span)
	if err != nil {
		return err
	}
	one, err := m.load(ctx, Load{Kind: "shell", Flight: 1, For: span})
	if err != nil {
		return err
	}
	two, err := m.load(ctx, Load{Kind: "shell", Flight: 8, For: span})
	if err != nil {
		return err
	}
	after, err := measureExec(ctx, span)
	if err != nil {
		return err
	}
	both := slices.Concat(before.one, after.one)
	void := ""
	if d := drift(before.perSecond, after.perSecond); d > driftLimit {
		void = fmt.Sprintf("the limit drifted by %.0f %%", d*100)
	}
	m.add(Figure{Name: "shell_stage_vs_exec", Value: ms(one.P50), Unit: "ms", LimitValue: ms(both.p50()), Samples: one.Samples, P50: ms(one.P50), P99: ms(one.P99), Void: void}, atMost(2))
	m.add(Figure{Name: "shell_runs_vs_exec", Value: perSecond(two.Count, two.Took), Unit: "runs/s", LimitValue: (before.perSecond + after.perSecond) / 2, Samples: int(two.Count), Void: void}, atLeast(0.4))
	return nil
}

func startup(ctx context.Context, m *meter) error {
	var all times
	for range pick(m, 5, 15) {
		dir := m.dir()
		s, err := m.serve(ctx, dir)
		if err != nil {
			return err
		}
		all = append(all, s.ready)
		if err := s.stop(); err != nil {
			return err
		}
		discard(dir)
	}
	m.add(Figure{Name: "startup_ms", Value: ms(all.p50()), Unit: "ms", Samples: len(all), P50: ms(all.p50()), P99: ms(all.p99())}, atMost(40))
	return nil
}

// idle: what a server that does nothing takes of the machine.
func idle(ctx context.Context, m *meter) error {
	dir := m.dir()
	defer discard(dir)
	s, err := m.serve(ctx, dir)
	if err != nil {
		return err
	}
	defer s.stop() //nolint:errcheck // it is killed
	span := pick(m, 2*time.Second, 10*time.Second)
	select {
	case <-time.After(time.Second): // what starting left behind
	case <-ctx.Done():
	}
	before := cpuTime(s.cmd.Process.Pid)
	select {
	case <-time.After(span):
	case <-ctx.Done():
	}
	used := cpuTime(s.cmd.Process.Pid) - before
	m.add(Figure{Name: "idle_rss_mib", Value: memoryMiB(s.cmd.Process.Pid, "VmRSS:"), Unit: "MiB", Samples: 1}, atMost(40))
	m.add(Figure{Name: "idle_cpu_percent", Value: 100 * used.Seconds() / span.Seconds(), Unit: "%", Samples: 1}, bound{most: 0.3, text: "<= 0.3"})
	return nil
}

// cpuTime is user and system time of a process, in the kernel's ticks of 10 ms.
func cpuTime(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memoryMiB gives one of the kernel's figures of a process.
func memoryMiB(pid int, field string) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if value, ok := strings.CutPrefix(line, field); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(value)[0], 64)
			return kib / 1024
		}
	}
	return 0
}
