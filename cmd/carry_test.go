package cmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/storage/bundle"
)

// TestOldExportsStayReadable: what was ever written is replayed, imported, and replayed from the store that it came into.
func TestOldExportsStayReadable(t *testing.T) {
	t.Parallel()
	want := map[string]struct {
		state     string
		runs      int
		events    uint64
		artifacts int
	}{
		"v1-chain.apollo":    {"completed", 1, 10, 2},
		"v1-foreach.apollo":  {"completed", 4, 32, 3},
		"v1-pinned.apollo":   {"completed", 1, 8, 7},
		"v1-retries.apollo":  {"failed", 1, 15, 4},
		"v1-verified.apollo": {"completed", 1, 11, 7},
	}
	found, err := filepath.Glob("testdata/exports/*.apollo")
	if err != nil || len(found) < len(want) {
		t.Fatalf("%d files, %v", len(found), err)
	}
	for _, path := range found {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			w, known := want[filepath.Base(path)]
			if !known {
				t.Fatal("what is in it?")
			}
			f, file, err := bundle.OpenPath(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if err := f.Verify(t.Context()); err != nil {
				t.Fatal(err)
			}
			m := f.Manifest
			if len(m.Runs) != w.runs || m.Log.Lines != w.events || len(m.Artifacts) != w.artifacts || m.Runs[0].State.String() != w.state {
				t.Errorf("%d runs, %d events, %d artifacts, %s", len(m.Runs), m.Log.Lines, len(m.Artifacts), m.Runs[0].State)
			}
			path, err := filepath.Abs(path)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			verdicts := apolloIn(t, dir, "replay", path, "-o", "jsonl")
			if strings.Count(verdicts, `"verdict":"same"`) != w.runs {
				t.Errorf("replay of the file:\n%s", verdicts)
			}
			if _, err := os.Stat(filepath.Join(dir, "apollo-data")); err == nil {
				t.Error("a replay of a file makes a store")
			}
			apolloIn(t, dir, "import", path)
			apolloIn(t, dir, "store", "fsck")
			apolloIn(t, dir, "store", "rebuild")
			var shown struct {
				State    string
				Imported string `json:"imported_at"`
			}
			if err := json.Unmarshal([]byte(apolloIn(t, dir, "show", m.Runs[0].Run.String(), "-o", "json")), &shown); err != nil || shown.State != w.state || shown.Imported == "" {
				t.Errorf("%+v %v", shown, err)
			}
		})
	}
}

// TestImportThroughAServer: the process that holds the data directory takes the file in while it works, and starts nothing of
// it, neither then nor when it is started again.
func TestImportThroughAServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, "p", "name: p\nstages:\n  a: {run: \"true\"}\n")
	file, err := filepath.Abs("testdata/exports/v1-retries.apollo")
	if err != nil {
		t.Fatal(err)
	}
	s.serve()
	var done struct {
		Digest string
		Runs   []struct{ Run, Verdict string }
	}
	if err := json.Unmarshal([]byte(s.must("import", file, "-o", "json")), &done); err != nil || len(done.Runs) != 1 || done.Runs[0].Verdict != "imported" || done.Digest == "" {
		t.Fatalf("%+v %v", done, err)
	}
	run := done.Runs[0].Run
	log := s.must("events", run)
	if !strings.Contains(log, `"type":"apollo.run.imported.v1"`) || !strings.Contains(log, `"reason":"v1-retries.apollo"`) || !strings.Contains(log, `"actor":"`) {
		t.Errorf("no mark:\n%s", log)
	}
	if again := s.must("import", file); !strings.Contains(again, "here already") {
		t.Errorf("again: %s", again)
	}
	mine := s.detach("p")
	s.ends(mine)
	s.kill()
	s.serve() // recovers what it finds
	if v := s.ends(s.detach("p")); v.State != "completed" {
		t.Errorf("%+v", v)
	}
	if now := s.must("events", run); now != log {
		t.Errorf("the server has touched an imported run:\n%s", now)
	}
	var rows []struct{ Run string }
	if err := json.Unmarshal([]byte(s.must("runs", "-o", "json")), &rows); err != nil || len(rows) != 3 {
		t.Errorf("%d runs, %v", len(rows), err)
	}
	left, err := filepath.Glob(filepath.Join(s.data, ".import-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	s.healthy()
}

// TestServerBelievesNoFile: what comes over the socket is looked at there too.
func TestServerBelievesNoFile(t *testing.T) {
	t.Parallel()
	s := newSite(t, "p", "name: p\nstages:\n  a: {run: \"true\"}\n")
	s.serve()
	b, err := os.ReadFile("testdata/exports/v1-chain.apollo")
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	status, answer := s.control("POST", "/api/v1/bundles?name=../../x", b)
	if status != 422 || !strings.Contains(answer, "E_BUNDLE_") {
		t.Errorf("%d %s", status, answer)
	}
	if rows := s.must("runs", "-o", "json"); strings.TrimSpace(rows) != "[]" {
		t.Errorf("runs: %s", rows)
	}
	if status, answer := s.control("GET", "/api/v1/openapi.json", nil); status != 200 || !strings.Contains(answer, `"import-bundle"`) {
		t.Errorf("the document does not say it: %d", status)
	}
}

// control asks the server over its socket.
func (s *site) control(method, path string, body []byte) (int, string) {
	s.t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		dir, err := os.Open(s.data) // a socket's path must be short
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		return (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/apollo.sock", dir.Fd()))
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://apollo"+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}
