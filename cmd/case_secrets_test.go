package cmd_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The secrets of the case, and what of each may appear nowhere.
const (
	keyFile = `{
  "type": "service_account",
  "project_id": "orders-2931",
  "private_key": "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n",
  "nested": [{"token": "t-5512-8890"}]
}`
	settings = "DB_USER=orders-app\nDB_PASSWORD='hunter22 in quotes'\nexport API_KEY=\"k-99=88==\"\n\n# a comment\nDEBUG=true\n"
)

var neverShown = []string{"service_account", "orders-2931", "MIIEvQIBADANBgkq", "hkiG9w0BAQEFAASC", "t-5512-8890",
	"orders-app", "orders-a", "hunter22", "k-99=88"}

// TestCase_K1: a tool that fails and prints its environment, whole or taken apart, tells no secret: not in its logs, the
// evidence, the events, nor in what any command shows. A secret of one character is refused, and masks nothing.
func TestCase_K1(t *testing.T) {
	t.Parallel()
	s := newSite(t, "k1", `name: k1
contracts: {row: {schema: {type: object, properties: {user: {enum: [nobody]}}}}}
stages:
  prints:
    secrets: {KEY: secret://key_file, SETTINGS: secret://settings}
    may_fail: true
    run: |
      env; env >&2; echo "debug is true, and 5 of 7 are done"
      printf %s "$KEY" | tr -d '\n '; echo " compact"
      printf '%b\n' "$(printf %s "$KEY" | sed -n 's/.*"private_key": "\(.*\)",/\1/p')"
      printf %s "$KEY" | sed -n 's/.*"token": "\(.*\)"}.*/token \1/p'
      printf %s "$SETTINGS" | sed -n "s/^DB_PASSWORD='\(.*\)'/password \1/p"
      (eval "$SETTINGS"; echo "api $API_KEY as $DB_USER" >&2)
      user=$(printf %s "$SETTINGS" | sed -n 's/^DB_USER=//p')
      echo "$user" >> "$APOLLO_SEGMENTS"
      echo "$(printf %0110d 0)$user" >> "$APOLLO_SEGMENTS"
      echo "$(printf %0120d 0)$user" >> "$APOLLO_SEGMENTS" # longer than a name may be: cut within the secret
      exit 3
  value:
    secrets: {KEY: secret://key_file}
    may_fail: true
    outputs: {found: {type: object}}
    run: |
      printf '{"found": {"a": ["the \\u0074-5512-8890"]}}' > "$APOLLO_OUTPUTS"
  row:
    secrets: {SETTINGS: secret://settings}
    may_fail: true
    outputs: {rows: {path: rows.csv, format: csv, contract: row}}
    run: |
      (echo user; printf %s "$SETTINGS" | sed -n 's/^DB_USER=//p') > rows.csv
  short:
    secrets: {TINY: secret://tiny}
    run: echo never
`)
	env := []string{"APOLLO_SECRET_KEY_FILE=" + keyFile, "APOLLO_SECRET_SETTINGS=" + settings, "APOLLO_SECRET_TINY=e"}
	s.serve(env...)
	run := s.detach("k1")
	v := s.ends(run)
	for i, want := range []struct{ class, reason string }{
		{"exec_failed", "code 3"}, {"bad_output", "E_SECRET_OUTPUT"}, {"bad_output", "rows"}, {"bad_input", "E_SECRET_SHORT"},
	} {
		if st := v.Stages[i]; st.Class != want.class || !strings.Contains(st.Reason, want.reason) {
			t.Errorf("%s: %s %s, want %s %s", st.Stage, st.Class, st.Reason, want.class, want.reason)
		}
	}
	logs := s.must("logs", run, "--raw")
	for _, want := range []string{"debug is true, and 5 of 7 are done\n", "token ***\n", "password ***\n", "api *** as ***\n", " compact\n"} {
		if !strings.Contains(logs, want) {
			t.Errorf("%q is not in the log:\n%s", want, logs)
		}
	}
	if segments := s.must("events", run); !strings.Contains(segments, `"***"`) || !strings.Contains(segments, `000***"`) {
		t.Errorf("the names of the segments are not masked: %s", segments)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	shown := map[string]string{"the server's log": s.stderr.String()}
	for _, args := range [][]string{{"show", run}, {"show", run, "-o", "json"}, {"events", run}, {"logs", run}, {"logs", run, "--raw"}, {"runs", "-o", "json"}, {"inbox", "-o", "json"}, {"replay", run, "--step"}} {
		shown["apollo "+strings.Join(args, " ")] = s.must(args...)
	}
	maps.Copy(shown, s.stored())
	for where, text := range shown {
		for _, secret := range neverShown {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s tells %q: …%q", where, secret, text[max(0, at-60):at+len(secret)])
			}
		}
	}
	s.healthy()
}

// stored is everything that the data directory keeps of runs, but for the files that failed stages left for people to
// look into: database, artifacts and logs, which is also all that can be carried to another machine.
func (s *site) stored() map[string]string {
	s.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(s.data, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "work":
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		return err
	})
	if err != nil || len(all) < 4 {
		s.t.Fatalf("%d files, %v", len(all), err)
	}
	return all
}

// TestCase_K1_commandLine: an engine that finds processes of a dead one names them, and not what stands on their
// command lines.
func TestCase_K1_commandLine(t *testing.T) {
	t.Parallel()
	pids := trace(t)
	s := newSite(t, "k1", `name: k1
stages:
  call:
    secrets: {TOKEN: secret://token}
    run: |
      if [ "$APOLLO_ATTEMPT" -gt 1 ]; then exit 0; fi
      sh -c 'echo $$ >> "$PIDS"; sleep 300; :' "--header=Bearer $TOKEN" &
      wait
    env: {PIDS: "`+pids+`"}
    isolation: off # what is observed may end by itself when nobody answers its calls any more
`)
	const token = "correct-horse-battery"
	s.serve("APOLLO_SECRET_TOKEN=" + token)
	run := s.detach("k1")
	pid := pidOf(t, pids)
	s.kill()
	if !alive(pid) {
		t.Fatal("the process ended with its engine: the case cannot be tested")
	}
	s.serve("APOLLO_SECRET_TOKEN=" + token)
	if v := s.ends(run); v.State != "completed" {
		t.Errorf("%s %s", v.State, v.Reason)
	}
	told := s.stderr.String()
	if !strings.Contains(told, "had left behind") || strings.Contains(told, token) {
		t.Errorf("the server says\n%s", told)
	}
	var line struct{ Process struct{ Command string } }
	for l := range strings.Lines(told) {
		if strings.Contains(l, "had left behind") && json.Unmarshal([]byte(l), &line) == nil && line.Process.Command == "" {
			t.Errorf("the process is not named: %s", l)
		}
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
}
