package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

var settings = executor.Settings{Owner: owner}

// loadAlert gives a channel whose script finds the path of its own file $to in the argument.
func loadAlert(tb testing.TB, script, to string) *Plugin {
	tb.Helper()
	program, dir := shell(script), newDir(tb)
	put(tb, filepath.Join(dir, "it", "main"), program, 0o755)
	text := strings.NewReplacer("kind: executor", "kind: alert", "[./main]", "[./main, \""+to+"\"]", "with: {type: object}\n", "timeout: 20s\n").Replace(manifest("it", program))
	put(tb, filepath.Join(dir, "it", ManifestFile), text, 0o644)
	p := Load(dir).Get("it")
	if p.Fault != nil {
		tb.Fatal(p.Fault)
	}
	return p
}

func TestAlert(t *testing.T) {
	t.Parallel()
	to := filepath.Join(t.TempDir(), "to")
	p := loadAlert(t, `printf %s "$request" > "$1"; echo '`+goodResult+`'`, to)
	alert := Alert{ID: "a1", Level: "critical", Title: "orders failed", Text: "3 of 5 <rows>", Time: time.Date(2026, 11, 30, 14, 0, 0, 0, time.FixedZone("", 8*3600)),
		Pipeline: "orders", Run: "r1", Stage: "clean", Class: events.BadInput}
	if err := p.Channel(settings).Alert(t.Context(), alert); err != nil {
		t.Fatal(err)
	}
	want := `{"protocol":1,"type":"alert","alert":{"id":"a1","level":"critical","title":"orders failed","text":"3 of 5 <rows>","time":"2026-11-30T06:00:00Z",` +
		`"pipeline":"orders","run":"r1","stage":"clean","class":"bad_input"}}`
	if diff := cmp.Diff(want, read(t, to)); diff != "" {
		t.Error(diff)
	}
}

func TestAlertThatIsNotSent(t *testing.T) {
	t.Parallel()
	for script, text := range map[string]string{
		`echo '{"type":"failure","class":"system","reason":"the host is down"}'`: "system: the host is down",
		`exit 4`: "exited with code 4",
		`:`:      "E_PLUGIN_PROTOCOL",
	} {
		err := loadAlert(t, script, "").Channel(settings).Alert(t.Context(), Alert{})
		if failure := (*events.Failure)(nil); !errors.As(err, &failure) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", script, err)
		}
	}
}

// Alerts of one channel at once do not end each other's processes: the first returns while the second goes on.
func TestAlertsAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := loadAlert(t, onlyOneWaits, dir)
	overlap(t, dir, func(first bool) error {
		id := "first"
		if !first {
			id = "waits"
		}
		return p.Channel(settings).Alert(t.Context(), Alert{ID: id})
	})
}

// onlyOneWaits is a plug-in that waits for the file go when its request says so, and has said that it runs. Else it leaves
// a process behind that must be found and ended.
const onlyOneWaits = `case $request in
*waits*) touch "$1/runs"; while [ ! -e "$1/go" ]; do sleep 0.01; done ;;
*) sleep 1000 & ;;
esac; echo '` + goodResult + `'`

// overlap does the second call, and the first while that runs.
func overlap(t *testing.T, dir string, call func(first bool) error) {
	t.Helper()
	second := make(chan error)
	go func() { second <- call(false) }()
	eventually(t, "the second runs", func() bool { _, err := os.Stat(filepath.Join(dir, "runs")); return err == nil })
	if err := call(true); err != nil {
		t.Errorf("the first: %v", err)
	}
	put(t, filepath.Join(dir, "go"), "", 0o600)
	if err := <-second; err != nil {
		t.Errorf("the second: %v", err)
	}
}

func TestTry(t *testing.T) {
	t.Parallel()
	sample := Sample{Run: events.ID{1}, With: []byte(`{"name":"Ada"}`), Now: time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC)}
	for name, test := range map[string]struct {
		plugin          *Plugin
		sent, log       string
		answers         int
		failure, change string
	}{
		"executor": {plugin: load(t, shell(`echo '{"type":"log","text":"hello"}'; echo '`+goodResult+`'`)), sent: `"with":{"name":"Ada"}`, log: "hello\n", answers: 2},
		"alert":    {plugin: loadAlert(t, `echo '`+goodResult+`'`, ""), sent: `"title":"Test"`, answers: 1},
		"broken":   {plugin: load(t, shell("echo why >&2; echo nonsense")), sent: `"type":"execute"`, log: "why\n", answers: 1, failure: "E_PLUGIN_PROTOCOL"},
		"swapped":  {plugin: load(t, shell("")), change: "main", failure: "E_PLUGIN_HASH"},
	} {
		if test.change != "" {
			put(t, filepath.Join(test.plugin.Dir, test.change), "another", 0o755)
		}
		trial, err := test.plugin.Try(t.Context(), settings, sample)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(trial.Sent), test.sent) || len(trial.Answers) != test.answers || trial.Log != test.log {
			t.Errorf("%s: %s %q %q", name, trial.Sent, trial.Answers, trial.Log)
		}
		if (trial.Failure == nil) != (test.failure == "") || trial.Failure != nil && !strings.HasPrefix(trial.Failure.Reason, test.failure) {
			t.Errorf("%s: %+v", name, trial.Failure)
		}
	}
}

func TestTryTemplate(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	put(t, filepath.Join(dir, "tidy", "tidy.yaml"), "a", 0o644)
	put(t, filepath.Join(dir, "tidy", ManifestFile), "name: tidy\nkind: template\nversion: v2\ntemplate: tidy.yaml\nsha256: \""+sum("a")+"\"\n", 0o644)
	p := Load(dir).Get("tidy")
	if trial, err := p.Try(t.Context(), settings, Sample{}); err != nil || p.Kind != configs.PluginTemplate || trial.Failure != nil || trial.Sent != nil {
		t.Errorf("%v, %+v", err, trial)
	}
	if err := os.Remove(filepath.Join(dir, "tidy", "tidy.yaml")); err != nil {
		t.Fatal(err)
	}
	if trial, err := p.Try(t.Context(), settings, Sample{}); err != nil || trial.Failure == nil {
		t.Errorf("%v, %+v", err, trial)
	}
}
