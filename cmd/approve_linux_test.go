package cmd_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/apollo-11/apollo/handlers/web"
)

// dialAs connects to a site's socket as a user of the system; 0 is whoever runs the test. Only the one thread that
// connects is that user, and it ends with the connection made.
func (s *site) dialAs(uid int) (net.Conn, error) {
	dir, err := os.Open(s.data) // a socket's address holds 107 bytes: a temporary directory's name may be longer
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	path := fmt.Sprintf("/proc/self/fd/%d/apollo.sock", dir.Fd())
	var c net.Conn
	done := make(chan error)
	go func() {
		if uid != 0 {
			runtime.LockOSThread() // and never unlocked: the thread ends
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				done <- errno
				return
			}
		}
		var err error
		c, err = net.Dial("unix", path)
		done <- err
	}()
	return c, <-done
}

// ask posts to the control API as a user of the system.
func (s *site) ask(uid int, path, body string) (int, string) {
	s.t.Helper()
	as := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return s.dialAs(uid) }}}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://apollo/api/v1"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := as.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// Who answers is whom the kernel names at the other end of the socket: only an approver may, whatever the request says.
func TestOnlyApproversAnswer(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	const ann, bob = 54321, 54322 // users that the system has no names for
	s := newSite(t, "release", `name: release
stages:
  ask:
    approval:
      message: Release it?
      approvers: ["uid:54321"]
      form:
        version: {type: string}
        copies: {type: integer, minimum: 1}
        note: {type: string, default: none}
    outputs: {version: {type: string}, copies: {type: integer}, note: {type: string}, approved_by: {type: string}}
`)
	s.serve()
	for path, mode := range map[string]os.FileMode{s.data: 0o711, filepath.Join(s.data, "apollo.sock"): 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	run := s.detach("release")
	s.waits(run, "ask")
	path := "/runs/" + run + "/stages/ask/"
	whole := `{"fields":{"version":"1.20","copies":"2"},"reason":"tests are green"}`
	for _, c := range []struct {
		who        int
		what, body string
		status     int
		says       []string
	}{
		{bob, "approve", whole, http.StatusForbidden, []string{"E_APPROVER", "uid:54322", "uid:54321"}},
		{bob, "reject", `{}`, http.StatusForbidden, []string{"E_APPROVER"}},
		{0, "approve", whole, http.StatusForbidden, []string{"E_APPROVER", web.UserName(0)}},
		{ann, "approve", `{"fields":{"copies":"0","extra":"1"}}`, http.StatusUnprocessableEntity, []string{"E_FORM", "version", "copies", "extra"}},
		{ann, "approve?item=1", whole, http.StatusNotFound, []string{"E_REF"}},
	} {
		status, answer := s.ask(c.who, path+c.what, c.body)
		if status != c.status {
			t.Errorf("user %d, %s: %d, want %d: %s", c.who, c.what, status, c.status, answer)
		}
		for _, want := range c.says {
			if !strings.Contains(answer, want) {
				t.Errorf("user %d, %s: %q is not said: %s", c.who, c.what, want, answer)
			}
		}
	}
	if text, code := s.apart("approve", run, "ask"); code != 4 || !strings.Contains(text, "E_APPROVER") {
		t.Errorf("by command: exit %d\n%s", code, text)
	}
	if w := s.asked(); len(w) != 1 || w[0].Message != "Release it?" || w[0].Since == "" || w[0].Due != "" || len(w[0].Form) != 3 {
		t.Errorf("it waits as %+v", w)
	}
	if status, answer := s.ask(ann, path+"approve", whole); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	if v := s.ends(run); v.State != "completed" {
		t.Errorf("%+v", v)
	}
	v := s.steered(run).Stages[0]
	if a := v.Answer; a == nil || !a.Approved || a.By != "uid:54321" || a.Reason != "tests are green" {
		t.Errorf("the answer is %+v", a)
	}
	for role, want := range map[string]string{"version": `"1.20"`, "copies": "2", "note": `"none"`, "approved_by": `"uid:54321"`} {
		if got := string(v.Outputs[role].Value); got != want {
			t.Errorf("%s is %s, want %s", role, got, want)
		}
	}
	if status, answer := s.ask(ann, path+"approve", whole); status != http.StatusConflict || !strings.Contains(answer, "E_") {
		t.Errorf("a second answer: %d %s", status, answer)
	}
	s.healthy()
}
