package cmd_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/apollo-11/apollo/cmd"
)

// TestMain turns the test binary into the program itself, so that the tests kill real processes and scripts run it.
func TestMain(m *testing.M) {
	if os.Getenv("APOLLO_TEST_MAIN") == "1" {
		_ = os.Unsetenv("APOLLO_TEST_MAIN")
		limitFiles()
		mountProc()
		cmd.Main()
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // else every process sleeps a second at its end under -race
	testscript.Main(m, map[string]func(){"apollo": func() { cmd.Main() }, "greeter": Example})
}

const hookSecret = "the secret of the fault tests"

// site is a data directory and a pipelines directory, with a server on them that is started and killed.
type site struct {
	t               *testing.T
	data, pipelines string
	server          *exec.Cmd
	address         string
	stderr          *safeBuffer
	ended           chan struct{}     // closed once the server's process is gone
	args            []string          // of the server, besides the usual ones
	prepare         func(*exec.Cmd)   // changes how the server is started; nil is not at all
	env             map[string]string // of commands that run in this process
}

// safeBuffer takes what a process says while the test reads it.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func emptySite(t *testing.T) *site {
	t.Helper()
	root := t.TempDir()
	s := &site{t: t, data: filepath.Join(root, "data"), pipelines: filepath.Join(root, "pipelines")}
	replaysAtEnd(t, root)
	t.Cleanup(s.kill)
	return s
}

// newSite makes a site with one pipeline.
func newSite(t *testing.T, name, definition string) *site {
	t.Helper()
	s := emptySite(t)
	dir := filepath.Join(s.pipelines, name)
	if err := os.MkdirAll(filepath.Join(dir, "inbox"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "pipeline.yaml"), definition)
	return s
}

func definitionOf(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name, "pipeline.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// command prepares the program in a process of its own.
func (s *site) command(env []string, args ...string) *exec.Cmd {
	c := exec.CommandContext(context.Background(), os.Args[0], append(args, "--data", s.data, "--pipelines", s.pipelines)...)
	c.Env = append(os.Environ(), "APOLLO_TEST_MAIN=1", "APOLLO_SECRET_GITHUB_HOOK="+hookSecret, "LANG=C", "LC_ALL=C")
	c.Env = append(c.Env, env...)
	return c
}

// launch starts the server without waiting for it to listen: it may be made to die before that.
func (s *site) launch(env ...string) (listening bool) {
	s.t.Helper()
	s.server, s.stderr, s.ended = s.command(env, append([]string{"serve", "--listen", "127.0.0.1:0"}, s.args...)...), new(safeBuffer), make(chan struct{})
	s.server.Stderr = s.stderr
	if s.prepare != nil {
		s.prepare(s.server)
	}
	out, in, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	s.server.Stdout = in
	if err := errors.Join(s.server.Start(), in.Close()); err != nil {
		s.t.Fatal(err)
	}
	server, ended := s.server, s.ended
	go func() {
		_ = server.Wait()
		close(ended)
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	s.address = address
	return err == nil && ok
}

// serve starts the server and waits until it listens.
func (s *site) serve(env ...string) {
	s.t.Helper()
	if !s.launch(env...) {
		s.t.Fatalf("the server does not listen:\n%s", s.stderr)
	}
}

// dead reports whether the server's process is gone.
func (s *site) dead() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// kill is kill -9, of the engine alone.
func (s *site) kill() {
	if s.server != nil {
		_ = s.server.Process.Kill()
		<-s.ended
	}
}

// stop asks the server to end and gives its exit code.
func (s *site) stop() int {
	s.t.Helper()
	if err := s.server.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Fatal(err)
	}
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		s.t.Fatalf("the server does not end:\n%s", s.stderr)
	}
	return s.server.ProcessState.ExitCode()
}

// apollo runs one command in this process.
func (s *site) apollo(args ...string) (out, errs string, code int) {
	var o, e bytes.Buffer
	args = append(args, "--data", s.data, "--pipelines", s.pipelines)
	code = cmd.Run(context.Background(), args, strings.NewReader(""), &o, &e, func(name string) string { return s.env[name] })
	return o.String(), e.String(), code
}

// must runs a command that has to succeed.
func (s *site) must(args ...string) string {
	s.t.Helper()
	out, errs, code := s.apollo(args...)
	if code != 0 {
		s.t.Fatalf("apollo %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// detach starts a run through the server and gives its id; empty when it was not acknowledged.
func (s *site) detach(pipeline string, args ...string) string {
	out, _, code := s.apollo(append([]string{"run", pipeline, "--detach"}, args...)...)
	if code != 0 {
		return ""
	}
	return strings.TrimSpace(out)
}

// ends waits for the end of a run.
func (s *site) ends(run string) runView {
	s.t.Helper()
	var v runView
	eventually(s.t, "the end of run "+run, func() bool {
		v = s.show(run)
		return slices.Contains([]string{"completed", "failed", "cancelled"}, v.State)
	})
	return v
}

// stageRuns waits until a stage runs in an attempt.
func (s *site) stageRuns(run, stage string, attempt int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("attempt %d of %s runs", attempt, stage), func() bool {
		for _, st := range s.show(run).Stages {
			if st.Stage == stage {
				return st.State == "running" && st.Attempt == attempt
			}
		}
		return false
	})
}

// post sends a webhook as GitHub does and gives the status and the answer; 0 when there was none.
func (s *site) post(path, delivery string, body []byte) (int, string) {
	return s.postAs(path, map[string]string{"Content-Type": "application/json", "X-Github-Event": "push", "X-Github-Delivery": delivery}, body)
}

// postAs signs a webhook as GitHub does.
func (s *site) postAs(path string, headers map[string]string, body []byte) (int, string) {
	mac := hmac.New(sha256.New, []byte(hookSecret))
	mac.Write(body)
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.address+"/hooks/"+path, bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer)
}

// client keeps no connection: the server behind it is killed.
var client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// healthy holds what must be true of every store: nothing is damaged, the rows are what the log says, and the log is
// what the engine would decide again.
func (s *site) healthy() {
	s.t.Helper()
	for _, args := range [][]string{{"store", "fsck"}, {"store", "rebuild"}, {"replay", "--all"}} {
		if out, errs, code := s.apollo(args...); code != 0 {
			s.t.Errorf("apollo %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
		}
	}
}

// eventually looks again at every tick until the condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not reached: %s", what)
		}
	}
}

// trace gives a file outside the work directories, into which stages write.
func trace(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "trace")
}

// treePipeline is a pipeline whose first stage is three processes that do not heed SIGTERM, one of them in a session of its
// own. Each writes its id into pids. The stage after it must never start.
func treePipeline(name, pids, timeout string) string {
	return "name: " + name + `
stages:
  tree:
    run: |
      trap '' TERM
      setsid sleep 301 &
      echo $! >> "$PIDS"
      (trap '' TERM; sleep 302) &
      echo $! >> "$PIDS"
      echo $$ >> "$PIDS"
      wait
      while :; do sleep 303; done
    env: {PIDS: "` + pids + `"}
    timeout: ` + timeout + `
    grace: 300ms
    isolation: off # what is observed may end by itself when nobody answers its calls any more
  never:
    needs: [tree]
    run: echo never
`
}

// treeOf waits for the three processes of treePipeline and gives their ids.
func treeOf(t *testing.T, pids string) (tree []int) {
	t.Helper()
	eventually(t, "three processes", func() bool {
		b, _ := os.ReadFile(pids)
		tree = nil
		for f := range strings.FieldsSeq(string(b)) {
			pid, _ := strconv.Atoi(f)
			tree = append(tree, pid)
		}
		return len(tree) == 3 && strings.HasSuffix(string(b), "\n")
	})
	return tree
}

func pidOf(t *testing.T, path string) int {
	t.Helper()
	pid := 0
	eventually(t, "a process wrote its id", func() bool {
		b, _ := os.ReadFile(path)
		lines := strings.Fields(string(b))
		if len(lines) == 0 || !strings.HasSuffix(string(b), "\n") {
			return false
		}
		pid, _ = strconv.Atoi(lines[len(lines)-1])
		return pid > 0
	})
	return pid
}

// alive reports whether a process is there and not only waits to be reaped.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func exitCode(err error) int {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	return 0
}
