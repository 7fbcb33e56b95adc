package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options are what a measurement needs from the program around it.
type Options struct {
	Quick bool
	Only  string // measure only this one of Groups
	Dir   string // on the disk to be measured; everything is made below it
	// Child gives the command of this program with arguments: a subject, or a server.
	Child func(ctx context.Context, args ...string) *exec.Cmd
	// Agree opens a store after its process was killed and holds what it finds against the number of acknowledged
	// deliveries: the zero-loss check.
	Agree func(ctx context.Context, dir string, accepted int64) error
	// Replay replays every event of a store and gives their number.
	Replay func(ctx context.Context, dir string) (events int, took time.Duration, err error)
	Tell   func(what string)
}

// Machine says what was measured on.
type Machine struct {
	Cores int    `json:"cores"`
	CPU   string `json:"cpu"`
	Go    string `json:"go"`
	OS    string `json:"os"`
	Date  string `json:"date"`
}

// Report is the whole result.
type Report struct {
	Machine Machine  `json:"machine"`
	Figures []Figure `json:"figures"`
}

// machine reads what the kernel says of the processor.
func machine() Machine {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, Date: time.Now().UTC().Format(time.DateOnly)}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.SplitSeq(string(info), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	return m
}

// meter is one measurement under way.
type meter struct {
	Options
	figures []Figure
	n       int
}

// group is a set of figures that are taken together.
type group struct {
	name string
	take func(ctx context.Context, m *meter) error
}

// groups is the order of the measurement.
func groups() []group {
	return []group{
		{"engine", engine}, {"chain", chain}, {"graph", graphs}, {"language", language}, {"large", large},
		{"webhook", webhook}, {"file", file}, {"shell", shell}, {"isolation", isolation}, {"artifacts", storing}, {"cache", cache},
		{"startup", startup}, {"idle", idle},
	}
}

// Groups gives the names of the groups of figures, in the order of the measurement.
func Groups() []string {
	var names []string
	for _, g := range groups() {
		names = append(names, g.name)
	}
	return names
}

// Run measures every group and gives the report. A figure that could not be taken is an error.
func Run(ctx context.Context, o Options) (Report, error) {
	m := &meter{Options: o}
	r := Report{Machine: machine()}
	var errs []error
	for _, g := range groups() {
		if o.Only != "" && g.name != o.Only {
			continue
		}
		o.Tell(g.name)
		if err := g.take(ctx, m); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", g.name, err))
		}
		r.Figures = m.figures // also when what follows is cut short
		if ctx.Err() != nil {
			return r, errors.Join(append(errs, context.Cause(ctx))...)
		}
	}
	return r, errors.Join(errs...)
}

// pick gives the short or the long form of a setting.
func pick[T any](m *meter, quick, long T) T {
	if m.Quick {
		return quick
	}
	return long
}

func (m *meter) dir() string {
	m.n++
	return filepath.Join(m.Dir, "bench-"+strconv.Itoa(m.n))
}

// subject runs one load in a child, kills the child with SIGKILL, and checks that nothing is missing.
func (m *meter) subject(ctx context.Context, dir string, l Load) (Done, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return Done{}, err
	}
	c := m.Child(ctx, "bench-subject", "--data", dir, string(text))
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return Done{}, err
	}
	stdin, err := c.StdinPipe() // it stays alive until it is killed
	if err != nil {
		return Done{}, err
	}
	defer stdin.Close()
	if err := c.Start(); err != nil {
		return Done{}, err
	}
	var d Done
	answer, readErr := bufio.NewReader(out).ReadBytes('\n')
	peak := memoryMiB(c.Process.Pid, "VmHWM:")
	killErr := c.Process.Kill()
	_ = c.Wait()
	if readErr != nil {
		return d, fmt.Errorf("the subject ended early: %w", readErr)
	}
	if err := errors.Join(killErr, json.Unmarshal(answer, &d)); err != nil {
		return d, err
	}
	d.Peak = peak
	return d, m.Agree(ctx, dir, d.Accepted)
}

// around measures the commit limit before and after, and gives both as one with how far they lie apart.
func (m *meter) around(take func() error) (limit commitLimit, drifted float64, err error) {
	span := pick(m, 400*time.Millisecond, time.Second)
	before, err := measureCommits(m.Dir, span)
	if err != nil {
		return limit, 0, err
	}
	if err := take(); err != nil {
		return limit, 0, err
	}
	after, err := measureCommits(m.Dir, span)
	if err != nil {
		return limit, 0, err
	}
	limit = commitLimit{perSecond: (before.perSecond + after.perSecond) / 2, times: slices.Concat(before.times, after.times)}
	return limit, drift(before.perSecond, after.perSecond), nil
}

const triesOnDrift = 3

// steady repeats a measurement whose limit drifted too far, a few times; what drifts to the end stays void.
func (m *meter) steady(take func() error) (limit commitLimit, void string, err error) {
	for range pick(m, 1, triesOnDrift) {
		var d float64
		if limit, d, err = m.around(take); err != nil {
			return limit, "", err
		}
		if d <= driftLimit {
			return limit, "", nil
		}
		void = fmt.Sprintf("the limit drifted by %.0f %%", d*100)
	}
	return limit, void, nil
}

// add takes a figure into the report. The bound holds for the ratio when there is a limit, else for the value.
func (m *meter) add(f Figure, b bound) {
	held := f.Value
	if f.LimitValue != 0 {
		f.Ratio = f.Value / f.LimitValue
		held = f.Ratio
	}
	f.Required, f.Met = b.text, f.Void == "" && b.holds(held)
	m.figures = append(m.figures, f)
}

func atLeast(v float64) bound { return bound{least: v, text: fmt.Sprintf(">= %v", v)} }
func atMost(v float64) bound  { return bound{most: v, text: fmt.Sprintf("<= %v", v)} }

// server starts `apollo serve` and waits until it listens.
type server struct {
	cmd     *exec.Cmd
	ready   time.Duration
	address string
}

func (m *meter) serve(ctx context.Context, dir string) (*server, error) {
	s := &server{cmd: m.Child(ctx, "serve", "--data", dir, "--pipelines", filepath.Join(dir, "pipelines"), "--listen", "127.0.0.1:0", "--log-level", "error")}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	s.ready = time.Since(begin)
	if err != nil {
		_ = s.stop()
		return nil, fmt.Errorf("the server did not start: %w", err)
	}
	s.address = strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return s, nil
}

func (s *server) stop() error {
	err := s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	return err
}
