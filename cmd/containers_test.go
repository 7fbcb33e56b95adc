package cmd_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/handlers/executor/enginetest"
)

// TestContainerOfADeadEngine kills the engine while a container runs. The next engine removes it before it starts the
// second copy, and leaves the containers of others alone.
func TestContainerOfADeadEngine(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t)
	image := "test@sha256:" + strings.Repeat("d1", 32)
	e.Images[image] = e.Images["test"]
	e.Add("theirs", &enginetest.Config{Labels: map[string]string{"apollo.owner": "/somebody", "apollo.run": "r"}})
	s := newSite(t, "orphan", `name: orphan
stages:
  wait:
    container:
      image: `+image+`
      command: [sh, -c, 'echo started; test "$APOLLO_ATTEMPT" -gt 1 || exec sleep 300']
`)
	env := "APOLLO_CONTAINER_HOST=" + e.Host
	s.serve(env)
	run := s.detach("orphan")
	eventually(t, "a container", func() bool { return len(e.Containers()) == 2 })
	s.kill()
	if len(e.Containers()) != 2 {
		t.Errorf("containers %q", e.Containers())
	}
	s.serve(env)
	if v := s.ends(run); v.State != "completed" {
		t.Errorf("%s: %s", v.State, v.Reason)
	}
	if diff := cmp.Diff([]string{"theirs"}, e.Containers()); diff != "" {
		t.Error(diff)
	}
	if len(e.Created) != 3 {
		t.Errorf("%d containers were made", len(e.Created))
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	s.healthy()
}
