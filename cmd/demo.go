package cmd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/replay"
	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) demoCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "demo", Args: a.arguments(0, 0)}, "demo")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), demoLimit)
		defer cancel()
		d, err := a.newDemo()
		if err != nil {
			return err
		}
		defer d.stop()
		return d.run(ctx)
	}
	return c
}

const demoLimit = time.Minute

// demo is the main job on real input, with a server of its own that is killed in the middle.
type demo struct {
	*app
	dir     string
	secret  string
	server  *exec.Cmd
	address string
}

func (a *app) newDemo() (*demo, error) {
	dir, err := os.MkdirTemp("", "apollo-demo-")
	if err != nil {
		return nil, err
	}
	key := make([]byte, 16)
	_, _ = rand.Read(key)
	b := *a
	b.data, b.pipelines = filepath.Join(dir, "data"), filepath.Join(dir, "pipelines")
	return &demo{app: &b, dir: dir, secret: hex.EncodeToString(key)}, os.CopyFS(b.pipelines, configs.DemoExamples())
}

func (d *demo) run(ctx context.Context) error {
	if err := d.start(ctx); err != nil {
		return err
	}
	d.tell("demo.started", "Address", d.address, "Data", d.data)
	if err := d.send(ctx); err != nil {
		return err
	}
	if err := d.drop(); err != nil {
		return err
	}
	if err := d.waitFor(ctx, inTheMiddle); err != nil {
		return err
	}
	d.tell("demo.killed", "PID", d.server.Process.Pid)
	if err := d.server.Process.Kill(); err != nil {
		return err
	}
	_ = d.server.Wait()
	if err := d.start(ctx); err != nil {
		return err
	}
	d.tell("demo.restarted")
	if err := d.waitFor(ctx, allEnded); err != nil {
		return err
	}
	return d.report(ctx)
}

// tell prints one line of the story.
func (d *demo) tell(id string, pairs ...any) {
	data := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		data[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	fmt.Fprintln(d.out, d.paint(accent, "→ ")+d.say.T(id, data))
}

func (d *demo) title(id string) {
	fmt.Fprintln(d.out, "\n"+d.paint(bold, d.say.T(id)))
}

// start runs this same program as the server and waits until it listens.
func (d *demo) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	d.server = exec.CommandContext(ctx, self, "serve", "--listen", "127.0.0.1:0", "--data", d.data, "--pipelines", d.pipelines, "--log-level", "error")
	d.server.Env = append(os.Environ(), "APOLLO_SECRET_GITHUB_HOOK="+d.secret)
	d.server.Stderr = d.err
	out, err := d.server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := d.server.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	first, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(first), "listening on ")
	if err != nil || !ok {
		return fmt.Errorf("the server did not start: %q, %w", first, errors.Join(err, d.server.Wait()))
	}
	d.address = address
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return nil
}

func (d *demo) stop() {
	if d.server == nil || d.server.Process == nil || d.server.ProcessState != nil {
		return
	}
	_ = d.server.Process.Signal(syscall.SIGTERM)
	_ = d.server.Wait()
}

// send posts the real push, the same again, and one with a wrong signature.
func (d *demo) send(ctx context.Context) error {
	body, err := os.ReadFile(filepath.Join(d.pipelines, "demo-push", "input", "push.json"))
	if err != nil {
		return err
	}
	for _, post := range []struct{ id, secret, delivery string }{
		{"demo.push", d.secret, "72d3162e-cc78-11e3-81ab-4c9367dc0958"},
		{"demo.again", d.secret, "72d3162e-cc78-11e3-81ab-4c9367dc0958"},
		{"demo.forged", "not the secret at all", "0b989ba4-242f-11e5-81e1-c7b6966d2516"},
	} {
		mac := hmac.New(sha256.New, []byte(post.secret))
		mac.Write(body)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.address+"/hooks/push", bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Github-Event", "push")
		req.Header.Set("X-Github-Delivery", post.delivery)
		req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		answer, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		d.tell(post.id, "Status", resp.Status+" "+strings.TrimSpace(string(answer)))
	}
	return nil
}

// drop lets the real CSV arrive as an upload does: under a temporary name first.
func (d *demo) drop() error {
	dir := filepath.Join(d.pipelines, "demo-weather")
	content, err := os.ReadFile(filepath.Join(dir, "input", "seattle-weather.csv"))
	if err != nil {
		return err
	}
	part := filepath.Join(dir, "inbox", "seattle-weather.csv.part")
	if err := os.WriteFile(part, content, 0o600); err != nil {
		return err
	}
	d.tell("demo.dropped", "Rows", bytes.Count(content, []byte("\n"))-1)
	return os.Rename(part, strings.TrimSuffix(part, ".part"))
}

const demoRuns = 2

// inTheMiddle is when both runs are there, neither has ended, and a stage runs.
func inTheMiddle(runs []storage.RunRow, running int) bool {
	for _, r := range runs {
		if r.State.Terminal() {
			return true // a fast machine: kill it all the same
		}
	}
	return len(runs) == demoRuns && running > 0
}

func allEnded(runs []storage.RunRow, _ int) bool {
	for _, r := range runs {
		if !r.State.Terminal() {
			return false
		}
	}
	return len(runs) == demoRuns
}

func (d *demo) waitFor(ctx context.Context, reached func(runs []storage.RunRow, running int) bool) error {
	return d.reading(ctx, func(s *sqlite.Store) error {
		for {
			runs, err := s.Runs(ctx, storage.RunFilter{})
			if err != nil {
				return err
			}
			running := 0
			for _, r := range runs {
				stages, err := s.Stages(ctx, r.ID)
				if err != nil {
					return err
				}
				for _, st := range stages {
					if st.State == events.Running {
						running++
					}
				}
			}
			if reached(runs, running) {
				return nil
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("the demonstration did not come to its end: %w", context.Cause(ctx))
			}
		}
	})
}

// report shows what became of everything, and fails when anything is not as it should be.
func (d *demo) report(ctx context.Context) error {
	return d.reading(ctx, func(s *sqlite.Store) error {
		runs, err := s.Runs(ctx, storage.RunFilter{})
		if err != nil {
			return err
		}
		wrong := 0
		d.title("demo.runs")
		for _, r := range runs {
			v, err := loadView(ctx, s, r.ID, d.logsDir())
			if err != nil {
				return err
			}
			if err := d.printRun(v, false); err != nil {
				return err
			}
			if v.run.State != events.Completed {
				wrong++
			}
		}
		d.title("demo.fates")
		if err := d.listDeliveries(ctx, s, storage.DeliveryFilter{}); err != nil {
			return err
		}
		d.title("demo.verdicts")
		for _, r := range runs {
			result, _, err := replay.One(ctx, s, r.ID, 0, nil)
			if err != nil {
				return err
			}
			d.printVerdict(result)
			if result.Verdict != "same" {
				wrong++
			}
		}
		d.title("demo.verified")
		ids := make([]events.ID, len(runs))
		for i := range runs {
			ids[i] = runs[i].ID
		}
		if err := d.verifyRuns(ctx, ids, &verifying{times: 1, jobs: max(1, runtime.NumCPU())}); err != nil {
			return err
		}
		if err := d.results(ctx, s, runs); err != nil {
			return err
		}
		if wrong > 0 {
			return silent(exitFailed)
		}
		return nil
	})
}

// results copies the reports out of the artifact store and shows them.
func (d *demo) results(ctx context.Context, s *sqlite.Store, runs []storage.RunRow) error {
	store, err := artifacts.Open(filepath.Join(d.data, "artifacts"))
	if err != nil {
		return err
	}
	defer store.Close()
	d.title("demo.results")
	for _, r := range runs {
		v, err := loadView(ctx, s, r.ID, d.logsDir())
		if err != nil {
			return err
		}
		i, ok := v.run.Graph.Index("report")
		if !ok || v.run.Stages[i].Last == nil {
			continue
		}
		for _, o := range v.run.Stages[i].Last.Outputs {
			from, err := store.Get(o.Digest)
			if err != nil {
				return err
			}
			content, err := io.ReadAll(from)
			if err = errors.Join(err, from.Close()); err != nil {
				return err
			}
			path := filepath.Join(d.dir, r.Pipeline+"-"+o.Name)
			if err := os.WriteFile(path, content, 0o600); err != nil {
				return err
			}
			fmt.Fprintf(d.out, "%s\n%s\n", d.paint(dim, path), clean(string(content)))
		}
	}
	d.tell("demo.kept", "Data", d.data)
	return nil
}
