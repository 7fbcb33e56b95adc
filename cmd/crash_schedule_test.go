package cmd_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestCrashWhileScheduling kills the server at each of its transactions in turn, while two runs go through conditions,
// items, a delay, a child run, an approval that nobody answers, a gate and a group. The restarted server ends them as a
// server does that lives, with one child run each.
func TestCrashWhileScheduling(t *testing.T) {
	t.Parallel()
	points, stride := []string{"commit"}, 7
	if os.Getenv("APOLLO_LONG") != "" {
		points, stride = []string{"begin", "commit", "committed"}, 1
	}
	want, _ := scheduled(t, "")
	if len(want) < 30 {
		t.Fatalf("only %d facts: %v", len(want), want)
	}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			met := 0
			for n := 1; !t.Failed(); n += stride {
				name, died := fmt.Sprintf("%s:%d", point, n), false
				t.Run(name, func(t *testing.T) {
					var got map[string]string
					if got, died = scheduled(t, name); !maps.Equal(got, want) {
						t.Errorf("it came to\n%s\nwant\n%s", facts(got), facts(want))
					}
				})
				if !died {
					break
				}
				met++
			}
			if met < 20/stride {
				t.Errorf("only %d points were met", met)
			}
		})
	}
}

func facts(all map[string]string) (text string) {
	for _, k := range slices.Sorted(maps.Keys(all)) {
		text += k + " " + all[k] + "\n"
	}
	return text
}

// scheduled runs two runs with the server dying at the point, and gives what everything came to.
func scheduled(t *testing.T, point string) (came map[string]string, died bool) {
	t.Helper()
	s := newSite(t, "whole", definitionOf(t, "whole"))
	part, err := os.ReadFile(filepath.Join("testdata", "whole", "part.yaml"))
	if err == nil {
		err = os.WriteFile(filepath.Join(s.pipelines, "whole", "part.yaml"), part, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{"k1", "k2"}
	acknowledged := map[string]bool{}
	send := func() {
		for _, key := range keys {
			acknowledged[key] = acknowledged[key] || s.detach("whole", "--key", key) != ""
		}
	}
	if s.launch("APOLLO_FAIL=" + point) {
		send()
	}
	ended := func() bool {
		rows := s.runs()
		return len(rows) >= 2*len(keys) && !slices.ContainsFunc(rows, func(r runView) bool { return r.EndedAt == "" })
	}
	eventually(t, "the server has died or the runs have ended", func() bool { return s.dead() || ended() })
	if died = s.dead() || s.stop() != 0; died {
		if point == "" {
			t.Fatalf("died without a cause:\n%s", s.stderr)
		}
		s.serve()
		send()
		eventually(t, "the runs after the restart have ended", ended)
		if code := s.stop(); code != 0 {
			t.Errorf("exit %d after the restart:\n%s", code, s.stderr)
		}
	}
	s.healthy()
	return whatCame(t, s), died
}

// whatCame gives what became of every stage, and the digests of what it gave, by pipeline.
func whatCame(t *testing.T, s *site) map[string]string {
	t.Helper()
	came := map[string]string{}
	number := map[string]int{}
	rows := s.runs()
	slices.SortFunc(rows, func(a, b runView) int { return slices.Compare([]byte(a.Run), []byte(b.Run)) })
	for _, row := range rows {
		number[row.Pipeline]++
		run := s.show(row.Run)
		of := fmt.Sprintf("%s %d", row.Pipeline, number[row.Pipeline])
		came[of] = run.State + " " + run.Class + " " + run.Reason
		instances := map[string]int{}
		for _, st := range run.Stages {
			instances[st.Stage]++
			name := fmt.Sprintf("%s %s %d", of, st.Stage, instances[st.Stage])
			came[name] = st.State + " " + st.Class
			for role, o := range st.Outputs {
				came[name+" "+role] = o.Digest
			}
		}
	}
	return came
}
