package executor

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHTTPByHand has curl make the request, which must be the executor's own.
func TestHTTPByHand(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("CI") == "true" { // there it is installed
			t.Fatal(err)
		}
		t.Skip("no curl here")
	}
	type request struct {
		Method, Query, Body, User, Token, Key, Kind, Extra string
	}
	seen := make(chan request, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		seen <- request{r.Method, r.URL.RawQuery, string(body), user + ":" + password, r.Header.Get("X-Token"), r.Header.Get("Idempotency-Key"), r.Header.Get("Content-Type"), r.Header.Get("X-Extra")}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte("from a\nfile"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHTTPForTest(t, "127.0.0.1")
	for name, c := range map[string]*Call{
		"get":  httpCall(t, `{"url":"%s/x?q=a%20b","query":{"p":"1&2"},"headers":{"X-Extra":"it's; here","X-No":null}}`, server.URL),
		"head": httpCall(t, `{"method":"HEAD","url":"%s/x"}`, server.URL),
		"json": httpCall(t, `{"method":"POST","url":"%s/x","body":{"text":"@file 'quoted'"},"auth":{"basic":{"user":"ann","password":"P"}},"secret_headers":{"X-Token":"T"},"secret_query":{"key":"T"}}`, server.URL,
			func(c *Call) { c.Secrets = map[string]string{"P": "pass:word", "T": "a b&c"} }),
		"file": httpCall(t, `{"method":"PUT","url":"%s/x","body_from":"f"}`, server.URL, func(c *Call) { c.Inputs = map[string]Input{"f": {Path: file}} }),
		"text": httpCall(t, `{"method":"PATCH","url":"%s/x","body":"@nothing"}`, server.URL),
	} {
		if _, failure := h.Execute(t.Context(), c); failure != nil {
			t.Fatalf("%s: %+v", name, failure)
		}
		want := <-seen
		m, failure := h.ByHand(t.Context(), c)
		if failure != nil {
			t.Fatalf("%s: %+v", name, failure)
		}
		if out, err := exec.CommandContext(t.Context(), m.Args[0], append([]string{"-sS"}, m.Args[1:]...)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		got := <-seen
		got.Query, want.Query = sortedQuery(got.Query), sortedQuery(want.Query)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: curl makes another request than the executor (-executor +curl):\n%s\n%q", name, diff, m.Args)
		}
	}
}

// sortedQuery makes different ways to write a query alike.
func sortedQuery(query string) string {
	req, err := http.NewRequest(http.MethodGet, "http://x/?"+query, nil)
	if err != nil {
		return query
	}
	return req.URL.Query().Encode()
}

func TestContainerByHand(t *testing.T) {
	t.Parallel()
	x := newContainer(t, "unix:///nobody/listens")
	c := containerCall(t, map[string]any{"image": "alpine:3", "entrypoint": []any{"/bin/sh", "-ec"}, "command": []any{"cat it"}, "user": "1:2", "pull": "never"})
	c.Network, c.Secrets = "allow", map[string]string{"TOKEN": "a token"}
	if err := os.MkdirAll(filepath.Join(c.Dir, "in", "rows"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.Inputs = map[string]Input{"rows": {Path: filepath.Join(c.Dir, "in", "rows", "rows.csv")}}
	m, failure := x.ByHand(t.Context(), c)
	if failure != nil {
		t.Fatalf("%+v", failure)
	}
	line := strings.Join(m.Args, " ")
	for _, want := range []string{"docker run --rm --network default --cap-drop ALL --security-opt no-new-privileges ", " --user 1:2 ", " --workdir /apollo/out ", " --pull never ",
		" --mount type=bind,source=" + c.Dir + "/in,target=/apollo/in,readonly ", " --mount type=bind,source=" + c.Dir + "/out,target=/apollo/out ", " --env TOKEN=a token ",
		" --env APOLLO_IN_ROWS=/apollo/in/rows/rows.csv ", " --entrypoint /bin/sh alpine:3 -ec cat it"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is not in %s", want, line)
		}
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "out")); err != nil {
		t.Error("what is mounted is not there")
	}
}

func TestPythonIsBuiltFirst(t *testing.T) {
	t.Parallel()
	dir, pip := shelf(t)
	writeWheel(t, dir, "greeting", "1.2", "print('hello')\n")
	p := newPython(t, pip)
	c := pythonCall(t, map[string]any{"script": "import greeting", "requirements": "greeting==1.2\n"})
	if built, failure := p.Built(t.Context(), c); built || failure != nil {
		t.Errorf("built before: %v, %+v", built, failure)
	}
	if log, failure := p.Build(t.Context(), c); failure != nil {
		t.Fatalf("%+v\n%s", failure, log)
	}
	if built, failure := p.Built(t.Context(), c); !built || failure != nil {
		t.Errorf("built: %v, %+v", built, failure)
	}
	d, failure := p.Describe(t.Context(), c)
	if failure != nil {
		t.Fatalf("%+v", failure)
	}
	if out, err := exec.CommandContext(t.Context(), d.Path, "-c", "import greeting").CombinedOutput(); err != nil || string(out) != "hello\n" {
		t.Errorf("%v: %s", err, out)
	}
	if built, failure := p.Built(t.Context(), pythonCall(t, map[string]any{"script": "pass"})); !built || failure != nil {
		t.Errorf("without a lock: %v, %+v", built, failure)
	}
}
