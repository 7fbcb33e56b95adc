package cmd

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestPipSettings(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PIP_INDEX_URL": "https://a", "APOLLO_PIP_INDEX_URL": "https://b", "PIP_TRUSTED_HOST": "a", "https_proxy": "http://p", "PIP_TARGET": "/etc", "HOME": "/root"}
	want := map[string]string{"PIP_INDEX_URL": "https://b", "PIP_TRUSTED_HOST": "a", "https_proxy": "http://p"}
	if diff := cmp.Diff(want, pipSettings(func(name string) string { return env[name] })); diff != "" {
		t.Error(diff)
	}
}
