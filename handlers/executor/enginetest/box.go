package enginetest

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// box is one container.
type box struct {
	engine   *Engine
	id, name string
	config   *Config

	mu      sync.Mutex
	cmd     *exec.Cmd
	gone    chan struct{} // closed when the process has ended, or the container was removed before its start
	once    sync.Once
	code    int
	oom     bool
	running bool
	sinks   []*sink
}

func newBox(e *Engine, name string, config *Config) *box {
	var id [32]byte
	_, _ = rand.Read(id[:]) // never fails
	return &box{engine: e, id: hex.EncodeToString(id[:]), name: name, config: config, gone: make(chan struct{})}
}

func (b *box) serve(w http.ResponseWriter, r *http.Request, verb string) {
	switch verb {
	case "attach":
		b.attach(w)
	case "start":
		b.start(w)
	case "wait":
		b.wait(w, r)
	case "json":
		b.inspect(w)
	case "kill":
		b.kill(w, r.URL.Query().Get("signal"))
	default:
		refuse(w, http.StatusNotFound, "page not found")
	}
}

// sink is a connection that takes the output.
type sink struct {
	mu    sync.Mutex
	conn  io.WriteCloser
	cut   bool
	ended bool
}

// part writes one stream into the mixture.
type part struct {
	box    *box
	stream byte
}

func (p part) Write(content []byte) (int, error) {
	p.box.mu.Lock()
	sinks := slices.Clone(p.box.sinks)
	p.box.mu.Unlock()
	for _, s := range sinks {
		s.mu.Lock()
		if !s.ended {
			head := []byte{p.stream, 0, 0, 0, 0, 0, 0, 0}
			binary.BigEndian.PutUint32(head[4:], uint32(len(content))) //nolint:gosec // a pipe's worth
			_, _ = s.conn.Write(append(head, content...))              // who does not listen misses it
			if s.cut {
				s.close()
			}
		}
		s.mu.Unlock()
	}
	return len(content), nil
}

func (s *sink) close() {
	if !s.ended {
		s.ended = true
		_ = s.conn.Close() // nobody is told
	}
}

func (b *box) attach(w http.ResponseWriter) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	b.engine.Lock()
	cut := b.engine.BreakNow["attach"]
	delete(b.engine.BreakNow, "attach")
	b.engine.Unlock()
	s := &sink{conn: conn, cut: cut}
	s.mu.Lock() // output that comes now waits until the client has its answer
	b.mu.Lock()
	b.sinks = append(b.sinks, s)
	b.mu.Unlock()
	_, _ = buffered.WriteString("HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	_ = buffered.Flush() // the client sees it when the connection is gone
	s.mu.Unlock()
	select {
	case <-b.gone:
		s.mu.Lock()
		s.close()
		s.mu.Unlock()
	default:
	}
}

// outside replaces the paths of mounts by those of the host, in one pass: a host's path may hold a mount's.
func (b *box) outside(text string) string {
	if name, value, ok := strings.Cut(text, "="); ok && !strings.ContainsAny(name, "/ ") {
		return name + "=" + b.outside(value)
	}
	var pairs []string
	for _, m := range b.config.HostConfig.Mounts {
		if text == m.Target {
			return m.Source
		}
		pairs = append(pairs, m.Target+"/", m.Source+"/")
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func (b *box) start(w http.ResponseWriter) {
	var words []string
	for _, word := range slices.Concat(b.config.Entrypoint, b.config.Cmd) {
		words = append(words, b.outside(word))
	}
	path, err := exec.LookPath(words[0])
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("failed to create task: exec: %q: executable file not found in $PATH", words[0]))
		return
	}
	cmd := &exec.Cmd{Path: path, Args: words, Dir: b.outside(b.config.WorkingDir), Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
		Stdout: part{b, 1}, Stderr: part{b, 2}, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	for _, v := range b.config.Env {
		cmd.Env = append(cmd.Env, b.outside(v))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := cmd.Start(); err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	b.cmd, b.running = cmd, true
	b.engine.serving.Go(b.follow)
	w.WriteHeader(http.StatusNoContent)
}

// follow waits for the process.
func (b *box) follow() {
	code, killed := exitOf(b.cmd.Wait())
	b.engine.Lock()
	oom := killed && b.engine.OutOfMemory
	b.engine.Unlock()
	b.mu.Lock()
	b.code, b.running, b.oom = code, false, oom
	b.mu.Unlock()
	b.over()
}

// over ends the output, and every wait.
func (b *box) over() {
	b.mu.Lock()
	sinks := slices.Clone(b.sinks)
	b.mu.Unlock()
	for _, s := range sinks {
		s.mu.Lock()
		s.close()
		s.mu.Unlock()
	}
	b.once.Do(func() { close(b.gone) })
}

func (b *box) wait(w http.ResponseWriter, r *http.Request) {
	b.engine.Lock()
	breaks := b.engine.BreakWaits > 0
	if breaks {
		b.engine.BreakWaits--
	}
	b.engine.Unlock()
	if breaks {
		panic(http.ErrAbortHandler)
	}
	select {
	case <-b.gone:
		b.mu.Lock()
		defer b.mu.Unlock()
		answer(w, map[string]any{"StatusCode": b.code})
	case <-r.Context().Done():
	}
}

func (b *box) inspect(w http.ResponseWriter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := map[string]any{"Running": b.running, "ExitCode": b.code, "OOMKilled": b.oom}
	if b.running {
		state["Pid"] = b.cmd.Process.Pid
	}
	answer(w, map[string]any{"Id": b.id, "State": state})
}

func (b *box) kill(w http.ResponseWriter, name string) {
	b.engine.Lock()
	deaf := b.engine.DeafToKill
	b.engine.Signals = append(b.engine.Signals, name)
	b.engine.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.running {
		refuse(w, http.StatusConflict, "container is not running")
		return
	}
	if !deaf {
		_ = unix.Kill(-b.cmd.Process.Pid, unix.SignalNum(name)) // it may just have ended
	}
	w.WriteHeader(http.StatusNoContent)
}

// end kills what runs and waits for it.
func (b *box) end() {
	b.mu.Lock()
	running := b.running
	if running {
		_ = unix.Kill(-b.cmd.Process.Pid, unix.SIGKILL) // it may just have ended
	}
	b.mu.Unlock()
	if !running {
		b.over()
	}
	<-b.gone
}

// exitOf gives the code of a process as an engine tells it.
func exitOf(err error) (code int, killed bool) {
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return 0, false
	case !ok:
		return 127, false
	}
	status := exit.Sys().(syscall.WaitStatus) //nolint:forcetypeassert // on Linux it is
	if status.Signaled() {
		return 128 + int(status.Signal()), status.Signal() == syscall.SIGKILL
	}
	return status.ExitStatus(), false
}
