// Package enginetest is a container engine for tests: the part of Docker's API that Apollo speaks, on a unix socket, whose
// containers are processes of this machine. A mount is imitated by putting the host's path where a variable or argument
// holds the container's, so what a command reads and writes under /apollo is really there.
package enginetest

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Image is an image of the engine or of its registry.
type Image struct {
	ID      string   // sha256:...
	Digests []string // name@sha256:...
}

// Mount is a bind mount of a container.
type Mount struct {
	Type, Source, Target string
	ReadOnly             bool
}

// Config is what a container was made from.
type Config struct {
	Image, User, WorkingDir, Hostname string
	Cmd, Entrypoint, Env              []string
	Labels                            map[string]string
	HostConfig                        struct {
		Mounts                                  []Mount
		NetworkMode, UsernsMode                 string
		CapDrop, SecurityOpt                    []string
		Privileged                              bool
		PidsLimit, Memory, MemorySwap, NanoCpus int64
		LogConfig                               struct{ Type string }
	}
}

// Engine is one engine with its images and containers. Its exported fields say how it misbehaves; they are set before the
// request that they are about, or under Lock.
type Engine struct {
	sync.Mutex

	Host string // for Settings.ContainerHost

	Podman, Rootless bool
	Images           map[string]Image // by reference
	Registry         map[string]Image // what a pull brings
	PullError        string           // what a pull says instead

	Refuse      map[string]int           // status by "METHOD last part of the path", as "POST kill", or "DELETE"
	Hold        map[string]chan struct{} // as Refuse: what was done is answered once the channel is closed
	BreakWaits  int                      // how many waits break off
	BreakNow    map[string]bool          // "attach": connections are cut after the first piece of output
	DeafToKill  bool                     // signals do nothing; only removal ends a container
	NoFilters   bool                     // a list holds everything
	OutOfMemory bool                     // what ends by SIGKILL ended for want of memory

	Pulled  []string           // references, as they were asked for
	Created map[string]*Config // by name, also of containers that are gone
	Signals []string

	containers map[string]*box // by id
	server     *http.Server
	serving    sync.WaitGroup
}

// New starts an engine that ends with the test. The image named test is on it.
func New(tb testing.TB) *Engine {
	tb.Helper()
	dir, err := os.MkdirTemp("", "engine") //nolint:usetesting // a socket's path is short
	if err != nil {
		tb.Fatal(err)
	}
	socket := filepath.Join(dir, "docker.sock")
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "unix", socket)
	if err != nil {
		tb.Fatal(err)
	}
	e := &Engine{Host: "unix://" + socket, Created: map[string]*Config{}, containers: map[string]*box{},
		Images: map[string]Image{"test": {ID: "sha256:" + strings.Repeat("1d", 32), Digests: []string{"test@sha256:" + strings.Repeat("d1", 32)}}}}
	e.server = &http.Server{Handler: e, ReadHeaderTimeout: time.Minute}
	e.serving.Go(func() { _ = e.server.Serve(listener) })
	tb.Cleanup(func() {
		for _, b := range e.list() {
			b.end()
		}
		_ = e.server.Close()
		e.serving.Wait()
		_ = os.RemoveAll(dir)
	})
	return e
}

func (e *Engine) list() []*box {
	e.Lock()
	defer e.Unlock()
	var all []*box
	for _, b := range e.containers {
		all = append(all, b)
	}
	return all
}

// Containers gives the names of the containers that are there, running or not.
func (e *Engine) Containers() []string {
	var names []string
	for _, b := range e.list() {
		names = append(names, b.name)
	}
	slices.Sort(names)
	return names
}

// ServeHTTP implements http.Handler.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if strings.HasPrefix(parts[0], "v1.") {
		parts = parts[1:]
	}
	last := parts[len(parts)-1]
	e.Lock()
	status, hold := e.Refuse[r.Method+" "+last], e.Hold[r.Method+" "+last]
	if r.Method == http.MethodDelete {
		status = e.Refuse["DELETE"]
	}
	e.Unlock()
	if hold != nil {
		defer func() { <-hold }()
	}
	switch {
	case status != 0:
		refuse(w, status, "told to refuse "+r.Method+" "+last)
	case last == "_ping":
		e.ping(w)
	case last == "info":
		e.info(w)
	case parts[0] == "images" && last == "create":
		e.pull(w, r.URL.Query().Get("fromImage"))
	case parts[0] == "images":
		e.image(w, strings.Join(parts[1:len(parts)-1], "/"))
	case len(parts) == 2 && last == "create":
		e.create(w, r)
	case len(parts) == 2 && last == "json":
		e.find(w, r)
	default:
		e.serveContainer(w, r, parts)
	}
}

func (e *Engine) serveContainer(w http.ResponseWriter, r *http.Request, parts []string) {
	e.Lock()
	b := e.containers[parts[1]]
	e.Unlock()
	switch {
	case b == nil:
		refuse(w, http.StatusNotFound, "No such container: "+parts[1])
	case r.Method == http.MethodDelete:
		b.end()
		e.Lock()
		delete(e.containers, b.id)
		e.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		b.serve(w, r, parts[len(parts)-1])
	}
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	answer(w, map[string]string{"message": text})
}

func answer(w http.ResponseWriter, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		panic(http.ErrAbortHandler) // who has gone needs no answer
	}
}

func decode(r io.Reader, into any) error { return json.NewDecoder(r).Decode(into) }

func (e *Engine) ping(w http.ResponseWriter) {
	w.Header().Set("Api-Version", "1.50")
	if e.Podman {
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Libpod-Api-Version", "5.0.0")
	}
}

func (e *Engine) info(w http.ResponseWriter) {
	options := []string{"name=seccomp,profile=builtin"}
	if e.Rootless {
		options = append(options, "name=rootless")
	}
	answer(w, map[string]any{"SecurityOptions": options})
}

func (e *Engine) image(w http.ResponseWriter, reference string) {
	e.Lock()
	found, ok := e.Images[reference]
	e.Unlock()
	if !ok {
		refuse(w, http.StatusNotFound, "No such image: "+reference)
		return
	}
	answer(w, map[string]any{"Id": found.ID, "RepoDigests": found.Digests})
}

func (e *Engine) pull(w http.ResponseWriter, reference string) {
	e.Lock()
	defer e.Unlock()
	e.Pulled = append(e.Pulled, reference)
	answer(w, map[string]string{"status": "Pulling from " + reference})
	found, ok := e.Registry[reference]
	switch {
	case e.PullError != "":
		answer(w, map[string]any{"error": e.PullError, "errorDetail": map[string]string{"message": e.PullError}})
	case !ok:
		answer(w, map[string]string{"error": "manifest for " + reference + " not found"})
	default:
		e.Images[reference] = found
		e.Images[strings.TrimSuffix(reference, ":latest")] = found
	}
}

func (e *Engine) create(w http.ResponseWriter, r *http.Request) {
	config, name := new(Config), r.URL.Query().Get("name")
	if err := decode(r.Body, config); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	e.Lock()
	defer e.Unlock()
	for _, b := range e.containers {
		if b.name == name {
			refuse(w, http.StatusConflict, "Conflict. The container name \"/"+name+"\" is already in use")
			return
		}
	}
	b := e.add(name, config)
	w.WriteHeader(http.StatusCreated)
	answer(w, map[string]any{"Id": b.id, "Warnings": []string{}})
}

// Add makes a container that was not asked for, as one that is left from before.
func (e *Engine) Add(name string, config *Config) {
	e.Lock()
	defer e.Unlock()
	e.add(name, config)
}

func (e *Engine) add(name string, config *Config) *box {
	b := newBox(e, name, config)
	e.containers[b.id], e.Created[name] = b, config
	return b
}

func (e *Engine) find(w http.ResponseWriter, r *http.Request) {
	var filters struct{ Label []string }
	if err := decode(strings.NewReader(r.URL.Query().Get("filters")), &filters); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	found := []map[string]any{}
	for _, b := range e.list() {
		fits := true
		for _, label := range filters.Label {
			name, value, _ := strings.Cut(label, "=")
			fits = fits && (e.NoFilters || b.config.Labels[name] == value)
		}
		if fits {
			found = append(found, map[string]any{"Id": b.id, "Labels": b.config.Labels})
		}
	}
	answer(w, found)
}
