package executor

import (
	"archive/zip"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// writeWheel makes the smallest package there is: one module and its metadata.
func writeWheel(t *testing.T, dir, name, version, module string, needs ...string) {
	t.Helper()
	info := name + "-" + version + ".dist-info/"
	metadata := "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"
	for _, need := range needs {
		metadata += "Requires-Dist: " + need + "\n"
	}
	var record strings.Builder
	f, err := os.Create(filepath.Join(dir, name+"-"+version+"-py3-none-any.whl"))
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	add := func(path, text string) {
		part, err := w.Create(path)
		if err == nil {
			_, err = part.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(text))
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", path, base64.RawURLEncoding.EncodeToString(sum[:]), len(text))
	}
	add(name+".py", module)
	add(info+"METADATA", metadata)
	add(info+"WHEEL", "Wheel-Version: 1.0\nGenerator: apollo\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
	record.WriteString(info + "RECORD,,\n")
	add(info+"RECORD", record.String())
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// shelf is a directory of packages, and the settings that make pip look nowhere else.
func shelf(t *testing.T) (dir string, pip map[string]string) {
	t.Helper()
	dir = t.TempDir()
	return dir, map[string]string{"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": dir}
}

func TestPythonLockIsInstalledOnce(t *testing.T) {
	t.Parallel()
	dir, pip := shelf(t)
	writeWheel(t, dir, "greeting", "1.2", "import name\nprint('hello', name.name)\n", "name==7")
	writeWheel(t, dir, "name", "7", "name = 'ada'\n")
	p := newPython(t, pip)
	lock := "# two\nname==7\ngreeting==1.2\n"
	with := map[string]any{"script": "import greeting, sys; print(sys.prefix); import os; print(os.environ['VIRTUAL_ENV'] == sys.prefix)", "requirements": lock}
	var wheels []string
	for attempt := range 2 {
		c := pythonCall(t, with)
		if attempt == 0 {
			c.Timeout = 1 // the environment is built all the same
			if r, failure := p.Execute(t.Context(), c); failure == nil || failure.Class != events.Timeout || len(r.Segments) != 1 || r.Segments[0].Duration <= 0 {
				t.Fatalf("got %+v, %+v", r, failure)
			}
			wheels, _ = filepath.Glob(dir + "/*")
			for _, wheel := range wheels {
				if err := os.Remove(wheel); err != nil {
					t.Fatal(err)
				}
			}
			continue
		}
		r := runPython(t, p, c)
		path, _ := lookPath("python3", stagePath)
		found := p.known[path]
		env := p.environmentOf(&found, lock)
		if got, want := string(r.Stdout.Tail(1000)), "hello ada\n"+env+"\nTrue\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if pin(r, "requirements") != events.DigestOf([]byte(lock)).String() || r.Segments[0].Name != "environment" {
			t.Errorf("got %+v, %+v", r.Pins, r.Segments)
		}
	}
	if _, failure := p.Execute(t.Context(), pythonCall(t, map[string]any{"script": "import pip", "requirements": lock})); failure == nil || failure.Exit != 1 {
		t.Errorf("the lock brings pip: %+v", failure)
	}
	if len(wheels) != 2 {
		t.Errorf("wheels were %q", wheels)
	}
	// Without the lock the packages are out of reach, and so is another lock's environment.
	r, failure := p.Execute(t.Context(), pythonCall(t, map[string]any{"script": "import greeting"}))
	if failure == nil || failure.Exit != 1 || !strings.Contains(string(r.Stderr.Tail(4096)), "No module named 'greeting'") {
		t.Errorf("got %+v", failure)
	}
}

func TestPythonLockFailsAndIsTriedAgain(t *testing.T) {
	t.Parallel()
	dir, pip := shelf(t)
	writeWheel(t, dir, "greeting", "1.2", "print('hello')\n", "name>=7")
	p := newPython(t, pip)
	for _, step := range []struct{ lock, reason, evidence string }{
		{"name==7\n", "E_PYTHON_ENV: the packages of the lock could not be installed", "No matching distribution found for name==7"},
		{"greeting==1.2\n", "E_PYTHON_ENV: the lock leaves out what its packages need", "requires name, which is not installed"},
		{"greeting==1.2 --hash=sha256:" + strings.Repeat("0", 64) + "\n", "E_PYTHON_ENV: the packages of the lock could not be installed", "DO NOT MATCH THE HASHES"},
	} {
		r, failure := p.Execute(t.Context(), pythonCall(t, map[string]any{"script": "import greeting", "requirements": step.lock}))
		if failure == nil || failure.Class != events.ExecFailed || !strings.HasPrefix(failure.Reason, step.reason) || failure.Actual == "" || !strings.Contains(r.Evidence, step.evidence) {
			t.Errorf("got %+v\n%s", failure, r.Evidence)
		}
		if left, _ := filepath.Glob(p.cache + "/*/complete"); len(left) > 1 {
			t.Errorf("left %q", left) // the builder is there
		}
	}
	writeWheel(t, dir, "name", "7", "")
	runPython(t, p, pythonCall(t, map[string]any{"script": "import name", "requirements": "name==7\n"}))
}

// pretender is a program that answers like Python, makes environments in no time and keeps a diary; in an environment
// it runs programs with the shell. The hook is shell code that runs while it makes an environment.
func pretender(t *testing.T, hook string) (path, diary string) {
	t.Helper()
	dir := t.TempDir()
	path, diary = filepath.Join(dir, "python"), filepath.Join(dir, "diary")
	text := `#!/bin/sh
case "$*" in
*find_spec*) printf '{"version":"3.99.1","executable":"%s","venv":true}\n' "` + path + `" ;;
*"-m venv"*) for d; do :; done; echo venv >> ` + diary + `; mkdir -p "$d/bin"; cp "$0" "$d/bin/python"; ` + hook + ` ;;
*"-m pip"*) echo pip >> ` + diary + ` ;;
*) shift; exec sh "$@" ;;
esac
`
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path, diary
}

const someLock = "name==7\n"

func pretend(t *testing.T, path, script string) *Call {
	t.Helper()
	return pythonCall(t, map[string]any{"interpreter": path, "script": script, "requirements": someLock})
}

func TestPythonEnvironmentIsBuiltByOne(t *testing.T) {
	t.Parallel()
	path, diary := pretender(t, "")
	cache := t.TempDir()
	var wait sync.WaitGroup
	for range 8 { // as many engines
		c := pretend(t, path, "echo ran")
		wait.Go(func() {
			r, failure := NewPython(Settings{Owner: owner, Cache: cache}).Execute(t.Context(), c)
			if failure != nil || string(r.Stdout.Tail(10)) != "ran\n" {
				t.Errorf("got %+v", failure)
			}
		})
	}
	wait.Wait()
	if got := read(t, diary); got != "venv\nvenv\npip\npip\n" {
		t.Errorf("the diary says %q", got)
	}
}

// Half an environment, as a crash leaves it, is never used.
func TestPythonHalfAnEnvironmentIsBuiltAnew(t *testing.T) {
	t.Parallel()
	path, diary := pretender(t, "")
	p := newPython(t, nil)
	found, failure := p.interpreter(t.Context(), newCall(t, "-"), path)
	if failure != nil {
		t.Fatal(failure)
	}
	dir := p.environmentOf(&found, someLock)
	if err := errors.Join(writeFile(pythonOf(dir), "#!/bin/sh\nexit 9\n"), os.Chmod(pythonOf(dir), 0o700), writeFile(dir+"/junk", "")); err != nil {
		t.Fatal(err)
	}
	runPython(t, p, pretend(t, path, "true"))
	if _, err := os.Stat(dir + "/junk"); !os.IsNotExist(err) || read(t, diary) != "venv\nvenv\npip\npip\n" {
		t.Errorf("junk: %v", err)
	}
	if err := os.Remove(pythonOf(dir)); err != nil {
		t.Fatal(err)
	}
	runPython(t, p, pretend(t, path, "true"))
}

func TestPythonBuildIsStopped(t *testing.T) {
	t.Parallel()
	path, diary := pretender(t, "sleep 1000")
	for name, want := range map[string]events.Class{"cancelled": events.Aborted, "too long": events.ExecFailed} {
		p := newPython(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		c := pretend(t, path, "true")
		if name == "too long" {
			p.patience = 500 * time.Millisecond
		} else {
			go func() {
				eventually(t, "a build", func() bool { b, _ := os.ReadFile(diary); return len(b) > 0 })
				cancel()
			}()
		}
		r, failure := p.Execute(ctx, c)
		cancel()
		if failure == nil || failure.Class != want || len(r.Segments) != 1 {
			t.Errorf("%s: got %+v", name, failure)
		}
		if want == events.ExecFailed && !strings.Contains(failure.Reason, "E_PYTHON_ENV") {
			t.Errorf("got %+v", failure)
		}
		nothingLives(t, c)
		if left, _ := filepath.Glob(p.cache + "/*/*"); len(left) > 0 {
			t.Errorf("%s: left %q", name, left)
		}
		if err := os.Remove(diary); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPythonBuilderDies has another process build the environment, sees that an attempt here waits for it, kills it in
// the middle, and sees the attempt build the environment itself.
func TestPythonBuilderDies(t *testing.T) {
	if cache := os.Getenv("EXECUTOR_TEST_CACHE"); cache != "" {
		c := pretend(t, os.Getenv("EXECUTOR_TEST_PYTHON"), "true")
		_, _ = NewPython(Settings{Owner: os.Getenv("EXECUTOR_TEST_OWNER"), Cache: cache}).Execute(t.Context(), c)
		return
	}
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	path, diary := pretender(t, "echo half > \"$d/half\"; if [ ! -e "+gate+".open ]; then echo waiting > "+gate+"; sleep 1000; fi")
	cache := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestPythonBuilderDies$")
	cmd.Env = append(os.Environ(), "EXECUTOR_TEST_CACHE="+cache, "EXECUTOR_TEST_PYTHON="+path, "EXECUTOR_TEST_OWNER="+owner+"-builder")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(gate)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if line, err := bufio.NewReader(f).ReadString('\n'); err != nil || line != "waiting\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := writeFile(gate+".open", ""); err != nil {
		t.Fatal(err)
	}
	p := NewPython(Settings{Owner: owner, Cache: cache + "/."})
	waiting, stop := context.WithCancel(t.Context())
	turn := make(chan *events.Failure, 1)
	go func() {
		_, failure := p.Execute(waiting, pretend(t, path, "true"))
		turn <- failure
	}()
	done := make(chan *Result, 1)
	go func() {
		r, failure := p.Execute(t.Context(), pretend(t, path, "echo ran"))
		if failure != nil {
			t.Errorf("got %+v", failure)
		}
		done <- r
	}()
	stop() // one who waits can be stopped
	if failure := <-turn; failure == nil || failure.Class != events.Aborted {
		t.Errorf("got %+v", failure)
	}
	if got := read(t, diary); got != "venv\n" {
		t.Errorf("the diary says %q while another builds", got)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if r := <-done; string(r.Stdout.Tail(10)) != "ran\n" {
		t.Errorf("got %q", r.Stdout.Tail(10))
	}
	if got := read(t, diary); got != "venv\nvenv\nvenv\npip\npip\n" {
		t.Errorf("the diary says %q", got)
	}
	if killed, err := KillOrphans(t.Context(), owner+"-builder"); err != nil || len(killed) == 0 {
		t.Errorf("killed %+v, %v", killed, err)
	}
}

func TestPythonWithoutVenv(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "python3.99")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nprintf '{\"version\":\"3.99.1\",\"executable\":\"%s\",\"venv\":false}' \"$0\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r, failure := newPython(t, nil).Execute(t.Context(), pretend(t, path, "true"))
	if failure == nil || failure.Class != events.ExecFailed || !strings.HasPrefix(failure.Reason, "E_PYTHON_ENV: ") || !strings.Contains(failure.Reason, "python3.99-venv") || pin(r, "python") != "3.99.1" {
		t.Errorf("got %+v", failure)
	}
	if _, failure := NewPython(Settings{Owner: owner}).Execute(t.Context(), pretend(t, path, "true")); failure == nil || failure.Class != events.System {
		t.Errorf("got %+v", failure)
	}
}

// What the operator configures reaches the builder, never the stage; its passwords reach nobody else.
func TestPythonPipSettings(t *testing.T) {
	t.Parallel()
	path, _ := pretender(t, `env | grep ^PIP_ | sort >&2; exit 4`)
	address := "https://robot:hunter2-hunter2@pypi.example.com/simple"
	p := newPython(t, map[string]string{"PIP_INDEX_URL": address, "PIP_NO_BINARY": "name"})
	r, failure := p.Execute(t.Context(), pretend(t, path, "true"))
	if failure == nil || failure.Exit != 4 || !strings.Contains(r.Evidence, "PIP_CONFIG_FILE=/dev/null\nPIP_INDEX_URL=https://***@pypi.example.com/simple\nPIP_NO_BINARY=name") {
		t.Errorf("got %+v, %s", failure, r.Evidence)
	}
	if text := fmt.Sprintf("%+v %+v", failure, r); strings.Contains(text, "hunter2") {
		t.Errorf("the password is told: %s", text)
	}
	if v := newPython(t, nil).pipVariables(); v["PIP_ONLY_BINARY"] != ":all:" {
		t.Errorf("got %v", v)
	}
	r = runPython(t, p, pythonCall(t, map[string]any{"script": "import os; print([n for n in os.environ if n.startswith('PIP')])"}))
	if got := string(r.Stdout.Tail(100)); got != "[]\n" {
		t.Errorf("the stage sees %s", got)
	}
}
