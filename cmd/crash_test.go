package cmd_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sender makes a run be wanted, and says whether that was acknowledged. It may be asked again, as senders do.
type sender func(s *site) (acknowledged bool)

var senders = map[string]sender{
	"manual": func(s *site) bool { return s.detach("crash", "--key", "k1") != "" },
	"webhook": func(s *site) bool {
		status, _ := s.post("crash", "72d3162e-cc78-11e3-81ab-4c9367dc0958", []byte(`{"ref":"refs/heads/main"}`))
		return status/100 == 2
	},
	"file": func(s *site) bool {
		path := filepath.Join(s.pipelines, "crash", "inbox", "a.txt")
		if _, err := os.Stat(path); err == nil {
			return true // it lies there: nobody drops it again
		}
		part := path + ".part"
		if os.WriteFile(part, []byte("dropped\n"), 0o600) != nil {
			return false
		}
		return os.Rename(part, path) == nil
	},
}

// TestCrashAtEveryCommitBoundary kills the server before, within and after each of its transactions in turn, until a
// run passes without meeting the point, and holds that the restarted server ends the run as if nothing had been.
func TestCrashAtEveryCommitBoundary(t *testing.T) {
	t.Parallel()
	definition := definitionOf(t, "crash")
	for kind, send := range senders {
		for _, point := range []string{"begin", "commit", "committed"} {
			t.Run(kind+"/"+point, func(t *testing.T) {
				t.Parallel()
				want := crashed(t, definition, kind, "", send)
				n := 1
				for ; crashAt(t, definition, kind, fmt.Sprintf("%s:%d", point, n), send, want); n++ {
					if t.Failed() {
						return
					}
				}
				if n < 4 { // three stages in a row are at least four transactions
					t.Errorf("only %d points were met", n-1)
				}
			})
		}
	}
}

func crashAt(t *testing.T, definition, kind, point string, send sender, want map[string]string) (died bool) {
	t.Helper()
	died = true
	t.Run(point, func(t *testing.T) {
		got := crashed(t, definition, kind, point, send)
		died = got["died"] != ""
		delete(got, "died")
		if !maps.Equal(got, want) {
			t.Errorf("outputs %v, want %v", got, want)
		}
	})
	return died
}

// crashed runs the pipeline once with the server dying at the point, and gives the digests of the outputs.
func crashed(t *testing.T, definition, kind, point string, send sender) map[string]string {
	t.Helper()
	s := newSite(t, "crash", definition)
	outputs := map[string]string{}
	acknowledged := false
	listening := s.launch("APOLLO_FAIL=" + point)
	if listening {
		acknowledged = send(s)
	}
	eventually(t, "the server has died or the run has ended", func() bool {
		if s.dead() {
			return true
		}
		rows := s.runs()
		return len(rows) == 1 && rows[0].EndedAt != ""
	})
	if died := s.dead() || s.stop() != 0; died { // a point may come while the server stops
		if point == "" {
			t.Fatalf("died without a cause:\n%s", s.stderr)
		}
		outputs["died"] = point
		if acknowledged && kind != "file" && len(s.inbox()) != 1 {
			t.Errorf("an acknowledged delivery is lost: inbox %v", s.inbox())
		}
		s.serve()
		if !acknowledged && !send(s) { // the sender tries again
			t.Fatalf("refused after the restart:\n%s", s.stderr)
		}
		eventually(t, "the run after the restart has ended", func() bool {
			rows := s.runs()
			return len(rows) > 0 && rows[0].EndedAt != ""
		})
		if code := s.stop(); code != 0 {
			t.Errorf("exit %d after the restart:\n%s", code, s.stderr)
		}
	}
	checkCrashed(t, s, outputs)
	s.healthy()
	return outputs
}

func checkCrashed(t *testing.T, s *site, outputs map[string]string) {
	t.Helper()
	rows := s.runs()
	if len(rows) != 1 {
		t.Fatalf("%d runs of one delivery: %+v", len(rows), rows)
	}
	run := s.show(rows[0].Run)
	if run.State != "completed" {
		t.Fatalf("run %s: %s %s\n%s", run.State, run.Class, run.Reason, s.stderr)
	}
	kept := 0
	for _, d := range s.inbox() {
		if d.Fate == "run" && d.Run == run.Run {
			kept++
		}
	}
	if kept != 1 {
		t.Errorf("the run has %d deliveries: %v", kept, s.inbox())
	}
	log := s.events(run.Run)
	for _, st := range run.Stages {
		if n := count(log, "stage.completed", st.Stage); n != 1 {
			t.Errorf("stage %s was completed %d times", st.Stage, n)
		}
		for role, o := range st.Outputs {
			outputs[st.Stage+"."+role] = o.Digest
		}
	}
	if len(outputs) < 3 || strings.Contains(fmt.Sprint(outputs), ":]") {
		t.Errorf("outputs are missing: %v", outputs)
	}
}
