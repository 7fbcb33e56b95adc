package cmd

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/apollo-11/apollo/handlers/executor"
)

// settings are what the executors of a data directory are told.
func (n *node) settings(allow []string) executor.Settings {
	build, _ := version()
	return executor.Settings{Owner: n.dir, Spare: filepath.Join(n.dir, "work", ".spare"), Tasks: n.app.tasks, Runs: n, Files: n.artifacts,
		HTTPAllow: allow, Version: build, Cache: filepath.Join(n.dir, "cache"), Pip: pipSettings(n.app.env), ContainerHost: containerHost(n.app.env)}
}

// executors gives those of this build and of the plug-ins by name.
func (a *app) executors(s executor.Settings) map[string]executor.Executor {
	byName := map[string]executor.Executor{}
	for _, x := range append(executor.Builtin(s), a.pluginSet().Executors(s)...) {
		byName[x.Spec().Name] = x
	}
	return byName
}

// containerHost gives the container engine to use: the one that is set, else the first of the usual sockets that is there.
func containerHost(env func(string) string) string {
	for _, name := range []string{"APOLLO_CONTAINER_HOST", "DOCKER_HOST"} {
		if host := env(name); host != "" {
			return host
		}
	}
	usual := []string{"/var/run/docker.sock", "/run/podman/podman.sock"}
	if dir := env("XDG_RUNTIME_DIR"); dir != "" {
		usual = append(usual, filepath.Join(dir, "podman", "podman.sock"))
	}
	for _, path := range usual {
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
			return "unix://" + path
		}
	}
	return "unix://" + usual[0]
}

// pipVariables are those of pip's own, and of the way to the network, that building a Python environment may need.
const pipVariables = `PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_NO_INDEX PIP_TRUSTED_HOST PIP_CERT PIP_CLIENT_CERT PIP_PROXY
	PIP_CONFIG_FILE PIP_DEFAULT_TIMEOUT PIP_RETRIES PIP_NO_BINARY PIP_ONLY_BINARY PIP_KEYRING_PROVIDER
	HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy SSL_CERT_FILE`

// pipSettings gives what the operator says about where Python packages come from. APOLLO_PIP_INDEX_URL goes before
// PIP_INDEX_URL.
func pipSettings(env func(string) string) map[string]string {
	settings := map[string]string{}
	for name := range strings.FieldsSeq(pipVariables) {
		if v := env(name); v != "" {
			settings[name] = v
		}
	}
	if index := env("APOLLO_PIP_INDEX_URL"); index != "" {
		settings["PIP_INDEX_URL"] = index
	}
	return settings
}
