package cmd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor/enginetest"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// expectation is an example's expect.yaml; configs/examples/README.md describes it.
type expectation struct {
	Start struct {
		Manual  *struct{ Params map[string]string }
		File    *struct{ Drop, Into string }
		Webhook *struct {
			Path, Body string
			Headers    map[string]string
		}
	}
	Images       []string
	State, Class string
	Stages       map[string]struct {
		State, Class string
		Attempts     int
	}
	Outputs map[string]map[string]string
}

// TestExamples runs every example as a user would, and holds what comes out against its expect.yaml.
func TestExamples(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob("../configs/examples/*/expect.yaml")
	if err != nil || len(found) < 10 {
		t.Fatalf("%d examples found, %v", len(found), err)
	}
	for _, path := range found {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			runExample(t, dir)
		})
	}
}

func runExample(t *testing.T, source string) {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "pipelines", "example")
	if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "expect.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want expectation
	if err := yaml.UnmarshalWithOptions(text, &want, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(root, "data")
	if want.Start.File != nil || want.Start.Webhook != nil {
		serveExample(t, root, dir, &want)
	} else {
		args := []string{"run", filepath.Join(dir, "pipeline.yaml"), "--data", data, "-o", "json"}
		if want.Start.Manual != nil {
			for k, v := range want.Start.Manual.Params {
				args = append(args, "--param", k+"="+v)
			}
		}
		env := map[string]string{}
		if len(want.Images) > 0 {
			env["APOLLO_CONTAINER_HOST"] = engineWith(t, want.Images)
		}
		apolloWith(t, env, args...)
	}
	compare(t, data, latest(t, data), &want)
}

// engineWith imitates a container engine that has the images, and gives its address.
func engineWith(t *testing.T, images []string) string {
	t.Helper()
	e := enginetest.New(t)
	for _, reference := range images {
		e.Images[reference] = enginetest.Image{ID: "sha256:" + strings.Repeat("1d", 32), Digests: []string{reference}}
	}
	return e.Host
}

// apollo runs one command in this process and gives its output and exit code.
func apollo(t *testing.T, args ...string) (string, int) {
	t.Helper()
	return apolloWith(t, nil, args...)
}

// apolloWith is apollo with an environment.
func apolloWith(t *testing.T, env map[string]string, args ...string) (string, int) {
	t.Helper()
	var out, errs bytes.Buffer
	code := Run(t.Context(), args, strings.NewReader(""), &out, &errs, func(name string) string { return env[name] })
	if errs.Len() > 0 {
		t.Logf("apollo %s: exit %d\n%s", strings.Join(args, " "), code, errs.String())
	}
	return out.String(), code
}

func latest(t *testing.T, data string) runJSON {
	t.Helper()
	out, code := apollo(t, "show", "latest", "--data", data, "-o", "json")
	var r runJSON
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		t.Fatalf("show: exit %d, %v, %s", code, err, out)
	}
	return r
}

const testHookSecret = "the secret of the examples"

// serveExample starts a server beside the example and makes what it expects arrive.
func serveExample(t *testing.T, root, dir string, want *expectation) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	env := map[string]string{"APOLLO_SECRET_GITHUB_HOOK": testHookSecret}
	ended := make(chan int, 1)
	var errs bytes.Buffer
	data := filepath.Join(root, "data")
	go func() {
		ended <- Run(ctx, []string{"serve", "--data", data, "--pipelines", filepath.Join(root, "pipelines"), "--listen", "127.0.0.1:0", "--log-level", "warn"},
			strings.NewReader(""), in, &errs, func(name string) string { return env[name] })
		_ = in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("serve: exit %d\n%s", <-ended, errs.String())
	}
	if f := want.Start.File; f != nil {
		if err := os.Rename(filepath.Join(dir, f.Drop), filepath.Join(dir, f.Into)); err != nil {
			t.Fatal(err)
		}
	} else {
		postExample(t, strings.TrimPrefix(strings.TrimSpace(line), "listening on "), dir, want)
	}
	eventually(t, "the run has ended", func() bool {
		out, code := apollo(t, "runs", "--data", data, "-o", "json")
		var rows []runRowJSON
		return code == 0 && json.Unmarshal([]byte(out), &rows) == nil && len(rows) == 1 && rows[0].EndedAt != ""
	})
	stop()
	if code := <-ended; code != 0 {
		t.Fatalf("serve: exit %d\n%s", code, errs.String())
	}
}

func postExample(t *testing.T, address, dir string, want *expectation) {
	t.Helper()
	hook := want.Start.Webhook
	body, err := os.ReadFile(filepath.Join(dir, hook.Body))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte(testHookSecret))
	mac.Write(body)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/hooks/"+hook.Path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range hook.Headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		t.Fatalf("post: %s %s", resp.Status, answer)
	}
}

// eventually looks again at every tick until the condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
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

func compare(t *testing.T, data string, got runJSON, want *expectation) {
	t.Helper()
	if got.State != want.State || got.Class != want.Class {
		t.Errorf("run: %s %s (%s), want %s %s", got.State, got.Class, got.Reason, want.State, want.Class)
	}
	stages := map[string]stageJSON{}
	for _, s := range got.Stages {
		stages[s.Stage] = s
	}
	for name, w := range want.Stages {
		s := stages[name]
		if s.State != w.State || w.Class != "" && s.Class != w.Class || w.Attempts > 0 && s.Attempt != w.Attempts {
			t.Errorf("stage %s: %s %s attempt %d (%s), want %+v", name, s.State, s.Class, s.Attempt, s.Reason, w)
		}
	}
	for name, outputs := range want.Outputs {
		for role, text := range outputs {
			if content := artifactText(t, data, stages[name].Outputs[role]); content != text {
				t.Errorf("output %s of %s: %q, want %q", role, name, content, text)
			}
		}
	}
	if out, code := apollo(t, "replay", got.Run, "--data", data); code != 0 {
		t.Errorf("replay: exit %d, %s", code, out)
	}
	if out, code := apollo(t, "store", "fsck", "--data", data); code != 0 {
		t.Errorf("fsck: exit %d, %s", code, out)
	}
}

func artifactText(t *testing.T, data string, o outputJSON) string {
	t.Helper()
	if len(o.Value) > 0 {
		return string(o.Value)
	}
	d, err := events.ParseDigest(o.Digest)
	if err != nil {
		return fmt.Sprintf("no output: %v", err)
	}
	s, err := artifacts.Open(filepath.Join(data, "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := s.Get(d)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
