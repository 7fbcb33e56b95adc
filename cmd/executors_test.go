package cmd

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/handlers/executor/enginetest"
)

func TestContainerHost(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "run") //nolint:usetesting // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "podman", "podman.sock")
	if err := os.Mkdir(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	usual := containerHost(func(string) string { return "" })
	for _, env := range []map[string]string{{"XDG_RUNTIME_DIR": dir}, {"XDG_RUNTIME_DIR": dir, "DOCKER_HOST": "tcp://b:1"}, {"APOLLO_CONTAINER_HOST": "tcp://a:1", "DOCKER_HOST": "tcp://b:1"}} {
		want := env["APOLLO_CONTAINER_HOST"]
		if want == "" {
			want = env["DOCKER_HOST"]
		}
		if want == "" {
			want = usual // nothing listens there yet
		}
		if got := containerHost(func(name string) string { return env[name] }); got != want {
			t.Errorf("%v: %s, want %s", env, got, want)
		}
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := containerHost(func(name string) string { return map[string]string{"XDG_RUNTIME_DIR": dir}[name] })
	if usual == "unix:///var/run/docker.sock" && got != "unix://"+socket {
		if _, err := os.Stat("/var/run/docker.sock"); err != nil {
			t.Errorf("got %s", got)
		}
	}
}

// An engine that starts removes the containers of the one before it in the same data directory, and no others.
func TestContainersOfADeadEngineAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := enginetest.New(t)
	e.Add("ours", &enginetest.Config{Labels: map[string]string{"apollo.owner": filepath.Join(dir, "data"), "apollo.run": "r"}})
	e.Add("theirs", &enginetest.Config{Labels: map[string]string{"apollo.owner": filepath.Join(dir, "data2"), "apollo.run": "r"}})
	pipeline := filepath.Join(dir, "p.yaml")
	if err := os.WriteFile(pipeline, []byte("name: p\nstages: {a: {run: 'true'}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, code := apolloWith(t, map[string]string{"APOLLO_CONTAINER_HOST": e.Host}, "run", pipeline, "--data", filepath.Join(dir, "data")); code != 0 {
		t.Errorf("exit %d", code)
	}
	if diff := cmp.Diff([]string{"theirs"}, e.Containers()); diff != "" {
		t.Error(diff)
	}
}

func TestPipSettings(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PIP_INDEX_URL": "https://a", "APOLLO_PIP_INDEX_URL": "https://b", "PIP_TRUSTED_HOST": "a", "https_proxy": "http://p", "PIP_TARGET": "/etc", "HOME": "/root"}
	want := map[string]string{"PIP_INDEX_URL": "https://b", "PIP_TRUSTED_HOST": "a", "https_proxy": "http://p"}
	if diff := cmp.Diff(want, pipSettings(func(name string) string { return env[name] })); diff != "" {
		t.Error(diff)
	}
}
