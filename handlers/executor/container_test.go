package executor

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor/enginetest"
)

// containerCall gives a call of a container stage.
func containerCall(tb testing.TB, with map[string]any) *Call {
	tb.Helper()
	c := newCall(tb, "-")
	raw, err := json.Marshal(with)
	if err != nil {
		tb.Fatal(err)
	}
	c.With = raw
	return c
}

// shellIn is a container that runs a script.
func shellIn(script string) map[string]any {
	return map[string]any{"image": "test", "entrypoint": []any{"/bin/sh", "-ec"}, "command": []any{script}}
}

func newContainer(tb testing.TB, host string) *Container {
	tb.Helper()
	x := NewContainer(Settings{Owner: owner, ContainerHost: host})
	tb.Cleanup(x.engine.http.CloseIdleConnections)
	return x
}

func nameOf(c *Call) string { return (&Container{}).nameOf(c) }

// configOf gives what the container of a call was made from.
func configOf(e *enginetest.Engine, c *Call) *enginetest.Config {
	e.Lock()
	defer e.Unlock()
	return e.Created[nameOf(c)]
}

func TestContainerSeesExactlyThis(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t)
	c := containerCall(t, map[string]any{"image": "test", "entrypoint": []any{"/bin/sh", "-ec"}, "command": []any{`
echo load >> "$APOLLO_SEGMENTS"
tr a-z A-Z < "$APOLLO_IN_DROP" > copy
wc -c < "$APOLLO_PARAM_BIG_FILE" > size
printf '{"n": 9007199254740993, "args": "%s"}' "$0 $1 $2" > "$APOLLO_OUTPUTS"
: > "$TMPDIR/scratch"
echo "the token is $TOKEN"; pwd >&2
echo save >> "$APOLLO_SEGMENTS"
`, "a b", 7, true}})
	drop := filepath.Join(c.Dir, "in", "drop", "a.csv")
	if err := writeFile(drop, "rows\n"); err != nil {
		t.Fatal(err)
	}
	big, _ := json.Marshal(strings.Repeat("x", maxEnvValue+1))
	c.Inputs = map[string]Input{"drop": {Path: drop}, "count": {Value: json.RawMessage("3")}}
	c.Params = map[string]json.RawMessage{"region": json.RawMessage(`"eu"`), "big": big}
	c.Env, c.Secrets = map[string]string{"MODE": "fast"}, map[string]string{"TOKEN": "s3cr3t-token"}
	r, failure := newContainer(t, e.Host).Execute(t.Context(), c)
	if failure != nil {
		t.Fatalf("%+v, %s", failure, r.Stderr.Tail(1000))
	}
	out := filepath.Join(c.Dir, "out")
	if got := read(t, filepath.Join(out, "copy")) + read(t, filepath.Join(out, "size")); got != "ROWS\n65537\n" {
		t.Errorf("got %q", got)
	}
	if got := string(r.Values["n"]) + string(r.Values["args"]); got != `9007199254740993"a b 7 true"` {
		t.Errorf("values %s", got)
	}
	if stdout, stderr := string(r.Stdout.Tail(100)), string(r.Stderr.Tail(100)); stdout != "the token is ***\n" || stderr != out+"\n" {
		t.Errorf("stdout %q, stderr %q", stdout, stderr)
	}
	var names []string
	for _, s := range r.Segments {
		names = append(names, s.Name)
	}
	if diff := cmp.Diff([]string{"environment", "load", "save"}, names); diff != "" {
		t.Error(diff)
	}
	wantPins := []events.Pair{{Name: "image", Value: "sha256:" + strings.Repeat("d1", 32)}, {Name: "image_id", Value: "sha256:" + strings.Repeat("1d", 32)}}
	if diff := cmp.Diff(wantPins, r.Pins); diff != "" {
		t.Error(diff)
	}
	if left := e.Containers(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	run := c.Run.String()
	got := configOf(e, c)
	want := []string{"APOLLO_ATTEMPT=1", "APOLLO_IDEMPOTENCY_KEY=" + run + "/fetch", "APOLLO_IN_COUNT=3", "APOLLO_IN_DROP=/apollo/in/drop/a.csv",
		"APOLLO_LOGICAL_TIME=2026-11-30T06:00:00Z", "APOLLO_OUTPUTS=/apollo/state/outputs.json", "APOLLO_PARAM_BIG_FILE=/apollo/values/APOLLO_PARAM_BIG",
		"APOLLO_PARAM_REGION=eu", "APOLLO_RUN_ID=" + run, "APOLLO_SEED=42", "APOLLO_SEGMENTS=/apollo/state/segments", "APOLLO_STAGE=fetch", "HOME=/tmp",
		"LANG=C.UTF-8", "MODE=fast", "SOURCE_DATE_EPOCH=1796018400", "TMPDIR=/tmp", "TOKEN=s3cr3t-token", "TZ=UTC"}
	if diff := cmp.Diff(want, got.Env); diff != "" {
		t.Error(diff)
	}
	mounts := []enginetest.Mount{}
	for _, m := range [][2]string{{"in", "/apollo/in"}, {"values", "/apollo/values"}, {"out", "/apollo/out"}, {"state", "/apollo/state"}, {"tmp", "/tmp"}} {
		mounts = append(mounts, enginetest.Mount{Type: "bind", Source: filepath.Join(c.Dir, m[0]), Target: m[1], ReadOnly: m[0] == "in" || m[0] == "values"})
	}
	if diff := cmp.Diff(mounts, got.HostConfig.Mounts); diff != "" {
		t.Error(diff)
	}
}

// What a container may do, by default and as asked for.
func TestContainerIsConfined(t *testing.T) {
	t.Parallel()
	own := fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	for name, test := range map[string]struct {
		with   map[string]any
		change func(*Call)
		engine func(*enginetest.Engine)
		want   map[string]any // what differs from the default
	}{
		"default":         {},
		"network":         {change: func(c *Call) { c.Network = "allow" }, want: map[string]any{"network": "default"}},
		"no network":      {change: func(c *Call) { c.Network = "none" }},
		"resources":       {change: func(c *Call) { c.Resources = &events.Resources{CPU: 0.5, Memory: 64 << 20} }, want: map[string]any{"memory": int64(64 << 20), "swap": int64(64 << 20), "cpus": int64(500_000_000)}},
		"user":            {with: map[string]any{"user": "1234"}, want: map[string]any{"user": "1234", "out": "drwxrwxrwx"}},
		"user as number":  {with: map[string]any{"user": 1234}, want: map[string]any{"user": "1234", "out": "drwxrwxrwx"}},
		"workdir":         {with: map[string]any{"workdir": "/tmp"}, want: map[string]any{"workdir": "/tmp"}},
		"Podman":          {engine: func(e *enginetest.Engine) { e.Podman = true }},
		"rootless Podman": {engine: func(e *enginetest.Engine) { e.Podman, e.Rootless = true, true }, want: map[string]any{"users": "keep-id"}},
		"rootless Docker": {engine: func(e *enginetest.Engine) { e.Rootless = true }, want: map[string]any{"user": "0:0"}},
		"an item":         {change: func(c *Call) { c.Item = 3 }, want: map[string]any{"attempt": "1/3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := enginetest.New(t)
			if test.engine != nil {
				test.engine(e)
			}
			with := shellIn("true")
			maps.Copy(with, test.with)
			c := containerCall(t, with)
			if test.change != nil {
				test.change(c)
			}
			if _, failure := newContainer(t, e.Host).Execute(t.Context(), c); failure != nil {
				t.Fatal(failure)
			}
			config := configOf(e, c)
			h := config.HostConfig
			info, err := os.Stat(filepath.Join(c.Dir, "out"))
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]any{"network": h.NetworkMode, "memory": h.Memory, "swap": h.MemorySwap, "cpus": h.NanoCpus, "user": config.User, "workdir": config.WorkingDir,
				"users": h.UsernsMode, "attempt": config.Labels["apollo.attempt"], "out": info.Mode().String(), "caps": strings.Join(h.CapDrop, ","),
				"security": strings.Join(h.SecurityOpt, ","), "pids": h.PidsLimit, "privileged": h.Privileged, "logs": h.LogConfig.Type,
				"owner": config.Labels["apollo.owner"], "run": config.Labels["apollo.run"], "stage": config.Labels["apollo.stage"], "host": config.Hostname}
			want := map[string]any{"network": "none", "memory": int64(0), "swap": int64(0), "cpus": int64(0), "user": own, "workdir": "/apollo/out", "users": "",
				"attempt": "1", "out": "drwx------", "caps": "ALL", "security": "no-new-privileges", "pids": int64(4096), "privileged": false, "logs": "none",
				"owner": owner, "run": c.Run.String(), "stage": "fetch", "host": "apollo"}
			maps.Copy(want, test.want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestContainerImages(t *testing.T) {
	t.Parallel()
	digest := func(b string) string { return "sha256:" + strings.Repeat(b, 32) }
	pulled := map[string]enginetest.Image{
		"registry.example.com:5000/app:1": {ID: digest("aa"), Digests: []string{"other@" + digest("00"), "registry.example.com:5000/app@" + digest("bb")}},
		"local:latest":                    {ID: digest("cc")},
		"app@" + digest("dd"):             {ID: digest("ee"), Digests: []string{"app@" + digest("ff")}},
		"test:latest":                     {ID: digest("12"), Digests: []string{"docker.io/library/test@" + digest("34")}},
	}
	for name, test := range map[string]struct {
		image, policy  string
		change         func(*enginetest.Engine)
		pulls          []string
		digest, id     string
		class          events.Class
		reason, actual string
	}{
		"there":          {image: "test", digest: digest("d1"), id: digest("1d")},
		"there, never":   {image: "test", policy: "never", digest: digest("d1"), id: digest("1d")},
		"always":         {image: "test", policy: "always", pulls: []string{"test:latest"}, digest: digest("34"), id: digest("12")},
		"missing":        {image: "registry.example.com:5000/app:1", policy: "missing", pulls: []string{"registry.example.com:5000/app:1"}, digest: digest("bb"), id: digest("aa")},
		"by digest":      {image: "app@" + digest("dd"), pulls: []string{"app@" + digest("dd")}, digest: digest("dd"), id: digest("ee")},
		"of no registry": {image: "local", pulls: []string{"local:latest"}, digest: digest("cc"), id: digest("cc")},
		"missing, never": {image: "app:2", policy: "never", class: events.ExecFailed, reason: "E_IMAGE: the image app:2 cannot be had", actual: "pull: never"},
		"nowhere":        {image: "app:2", pulls: []string{"app:2"}, class: events.ExecFailed, reason: "E_IMAGE", actual: "manifest for app:2 not found"},
		"breaks on its way": {image: "local", change: func(e *enginetest.Engine) { e.PullError = "layer: unexpected EOF" }, pulls: []string{"local:latest"},
			class: events.ExecFailed, reason: "E_IMAGE", actual: "unexpected EOF"},
		"not allowed": {image: "local", change: func(e *enginetest.Engine) { e.Refuse = map[string]int{"POST create": 403} }, class: events.ExecFailed, reason: "E_IMAGE", actual: "403"},
		"sick":        {image: "local", change: func(e *enginetest.Engine) { e.Refuse = map[string]int{"GET json": 500} }, class: events.System, reason: "E_CONTAINER_ENGINE: the container engine refused to look for the image"},
		"a path":      {image: "../containers/x", class: events.ExecFailed, reason: "E_IMAGE", actual: "no name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := enginetest.New(t)
			e.Registry = pulled
			if test.change != nil {
				test.change(e)
			}
			with := shellIn("true")
			with["image"] = test.image
			if test.policy != "" {
				with["pull"] = test.policy
			}
			c := containerCall(t, with)
			r, failure := newContainer(t, e.Host).Execute(t.Context(), c)
			if diff := cmp.Diff(test.pulls, e.Pulled); diff != "" {
				t.Error(diff)
			}
			if test.class != "" {
				if failure == nil || failure.Class != test.class || !strings.Contains(failure.Reason, test.reason) || !strings.Contains(failure.Actual, test.actual) {
					t.Errorf("got %+v", failure)
				}
				return
			}
			if failure != nil {
				t.Fatal(failure)
			}
			if pin(r, "image") != test.digest || pin(r, "image_id") != test.id || configOf(e, c).Image != test.id {
				t.Errorf("pins %+v, made from %s", r.Pins, configOf(e, c).Image)
			}
		})
	}
}

func TestContainerFailures(t *testing.T) {
	t.Parallel()
	nul, _ := json.Marshal("a\x00b")
	for name, test := range map[string]struct {
		with   map[string]any
		change func(*enginetest.Engine, *Call)
		want   events.Failure
	}{
		"exit":          {with: shellIn("exit 7"), want: events.Failure{Class: events.ExecFailed, Exit: 7, Reason: "exited with code 7"}},
		"137 by itself": {with: shellIn("exit 137"), want: events.Failure{Class: events.ExecFailed, Exit: 137, Reason: "SIGKILL, which Apollo did not send, or exited so by itself"}},
		"a signal":      {with: shellIn("kill -SEGV $$"), want: events.Failure{Class: events.ExecFailed, Exit: 139, Reason: "SIGSEGV"}},
		"memory": {with: shellIn("kill -KILL $$"), change: func(e *enginetest.Engine, c *Call) {
			e.OutOfMemory, c.Resources = true, &events.Resources{Memory: 64 << 20}
		}, want: events.Failure{Class: events.ExecFailed, Exit: 137, Signal: "SIGKILL", Expected: "at most 64Mi", Reason: "more memory than 64Mi"}},
		"memory, untold": {with: shellIn("kill -KILL $$"), change: func(_ *enginetest.Engine, c *Call) { c.Resources = &events.Resources{Memory: 64 << 20} },
			want: events.Failure{Class: events.ExecFailed, Exit: 137, Reason: "the limit of 64Mi"}},
		"memory of the machine": {with: shellIn("kill -KILL $$"), change: func(e *enginetest.Engine, _ *Call) { e.OutOfMemory = true },
			want: events.Failure{Class: events.ExecFailed, Exit: 137, Signal: "SIGKILL", Reason: "what the machine could give"}},
		"no such program": {with: map[string]any{"image": "test", "command": []any{"/opt/none"}}, want: events.Failure{Class: events.ExecFailed, Exit: 127, Reason: "E_EXEC_NOTFOUND"}},
		"outputs":         {with: shellIn(`echo '{"a":1,"a":2}' > "$APOLLO_OUTPUTS"`), want: events.Failure{Class: events.BadOutput, Reason: "twice"}},
		"NUL":             {with: map[string]any{"image": "test", "command": []any{json.RawMessage(nul)}}, want: events.Failure{Class: events.BadInput, Pointer: "/command/0", Reason: "NUL"}},
		"unknown setting": {with: map[string]any{"image": "test", "privileged": true}, want: events.Failure{Class: events.ExecFailed, Reason: "privileged"}},
		"own variable":    {with: shellIn("true"), change: func(_ *enginetest.Engine, c *Call) { c.Env = map[string]string{"APOLLO_SEED": "1"} }, want: events.Failure{Class: events.ExecFailed, Reason: "E_ENV_NAME"}},
		"input elsewhere": {with: shellIn("true"), change: func(_ *enginetest.Engine, c *Call) { c.Inputs = map[string]Input{"a": {Path: "/etc/passwd"}} }, want: events.Failure{Class: events.System, Reason: "outside"}},
		"cannot make":     {with: shellIn("true"), change: func(e *enginetest.Engine, _ *Call) { e.Refuse = map[string]int{"POST create": 500} }, want: events.Failure{Class: events.System, Reason: "E_CONTAINER_ENGINE: the container engine refused to make the container"}},
		"cannot attach":   {with: shellIn("true"), change: func(e *enginetest.Engine, _ *Call) { e.Refuse = map[string]int{"POST attach": 500} }, want: events.Failure{Class: events.System, Reason: "E_CONTAINER_ENGINE"}},
		"cannot start":    {with: shellIn("true"), change: func(e *enginetest.Engine, _ *Call) { e.Refuse = map[string]int{"POST start": 500} }, want: events.Failure{Class: events.System, Reason: "E_CONTAINER_ENGINE: the container engine refused to start"}},
		"does not answer": {with: shellIn("true"), change: func(e *enginetest.Engine, _ *Call) { e.Refuse = map[string]int{"GET info": 500} }, want: events.Failure{Class: events.System, Reason: "E_CONTAINER_ENGINE"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := enginetest.New(t)
			c := containerCall(t, test.with)
			if test.change != nil {
				test.change(e, c)
			}
			_, failure := newContainer(t, e.Host).Execute(t.Context(), c)
			if failure == nil || failure.Class != test.want.Class || failure.Exit != test.want.Exit || failure.Signal != test.want.Signal ||
				test.want.Pointer != "" && failure.Pointer != test.want.Pointer || test.want.Expected != "" && failure.Expected != test.want.Expected ||
				!strings.Contains(failure.Reason, test.want.Reason) {
				t.Errorf("got %+v", failure)
			}
			if left := e.Containers(); len(left) > 0 {
				t.Errorf("left %q", left)
			}
		})
	}
}

func TestContainerWithoutAnEngine(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"unix://" + filepath.Join(t.TempDir(), "none.sock"), "ssh://host", ""} {
		_, failure := newContainer(t, host).Execute(t.Context(), containerCall(t, shellIn("true")))
		if failure == nil || failure.Class != events.System || !strings.Contains(failure.Reason, "E_CONTAINER_ENGINE") || !strings.Contains(failure.Reason, "APOLLO_CONTAINER_HOST") ||
			!strings.Contains(failure.Expected, host) || failure.Actual == "" {
			t.Errorf("%s: got %+v", host, failure)
		}
		if removed, err := RemoveContainers(t.Context(), host, owner); removed != nil || err != nil {
			t.Errorf("%s: %v, %v", host, removed, err)
		}
	}
}

// What a crash left under the name is removed when it is this attempt's own.
func TestContainerNameIsTaken(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		e := enginetest.New(t)
		x := newContainer(t, e.Host)
		c := containerCall(t, shellIn("echo again"))
		labels := map[string]string{"apollo.owner": owner, "apollo.run": c.Run.String(), "apollo.stage": c.Stage, "apollo.attempt": "1"}
		if !own {
			labels["apollo.owner"] = "somebody"
		}
		e.Add(nameOf(c), &enginetest.Config{Image: "test", Labels: labels})
		r, failure := x.Execute(t.Context(), c)
		switch {
		case own && (failure != nil || string(r.Stdout.Tail(10)) != "again\n" || len(e.Containers()) != 0):
			t.Errorf("got %+v, left %q", failure, e.Containers())
		case !own && (failure == nil || failure.Class != events.System || !strings.Contains(failure.Reason, "in use") || len(e.Containers()) != 1):
			t.Errorf("got %+v, left %q", failure, e.Containers())
		}
	}
}

// A connection that breaks off is no end of the container.
func TestContainerOutlivesItsConnections(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t)
	e.BreakWaits, e.BreakNow = 3, map[string]bool{"attach": true}
	x, c := newContainer(t, e.Host), containerCall(t, shellIn(`echo ready; while [ ! -e go ]; do sleep 0.01; done; echo done; exit 5`))
	end := startContainer(t.Context(), t, x, c)
	eventually(t, "a second connection", func() bool {
		b, _ := os.ReadFile(filepath.Join(c.LogDir, "stderr"))
		return strings.Contains(string(b), "output may be missing here")
	})
	if err := writeFile(filepath.Join(c.Dir, "out", "go"), ""); err != nil {
		t.Fatal(err)
	}
	r, failure := end()
	if failure == nil || failure.Exit != 5 || !strings.HasSuffix(string(r.Stdout.Tail(100)), "done\n") {
		t.Errorf("got %+v, %q", failure, r.Stdout.Tail(100))
	}
}

func TestContainerGoesAway(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t)
	x, c := newContainer(t, e.Host), containerCall(t, shellIn("echo ready; exec sleep 1000"))
	end := startContainer(t.Context(), t, x, c)
	if removed, err := RemoveContainers(t.Context(), e.Host, owner); err != nil || len(removed) != 1 {
		t.Fatal(removed, err)
	}
	if r, failure := end(); failure == nil || failure.Class != events.ExecFailed || !strings.Contains(failure.Reason, "somebody removed the container") && failure.Exit != 137 || r.Leftovers != 0 {
		t.Errorf("got %+v", failure)
	}
}

// A mark that was written last is read when the container has gone.
func TestContainerLastSegment(t *testing.T) {
	t.Parallel()
	c := newCall(t, "-")
	if err := os.MkdirAll(filepath.Join(c.Dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	pipe, err := openSegments(c, false)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if _, err := pipe.WriteString("save\n"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	close(ended)
	x := &containerAttempt{call: c, result: new(Result), segments: pipe, output: io.NopCloser(strings.NewReader("")), ended: ended}
	x.finish()
	if len(x.result.Segments) != 1 || x.result.Segments[0].Name != "save" {
		t.Errorf("got %+v", x.result.Segments)
	}
}

func TestContainerOutput(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t)
	c := containerCall(t, shellIn(`i=0; while [ $i -lt 300 ]; do printf '%01024d' 0; i=$((i+1)); done; printf '%01024d' 7 >&2`))
	r, failure := newContainer(t, e.Host).Execute(t.Context(), c)
	if failure != nil || r.Stdout.Bytes != 300*1024 || r.Stderr.Bytes != 1024 || strings.Trim(read(t, r.Stdout.Path), "0") != "" {
		t.Errorf("got %+v, %+v", failure, r)
	}
}
