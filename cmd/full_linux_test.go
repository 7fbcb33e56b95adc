package cmd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// padding is the body of a webhook that takes some room.
func padding(size int) []byte {
	b, _ := json.Marshal(map[string]string{"ref": "refs/heads/main", "padding": strings.Repeat("x", size)})
	return b
}

// fill posts webhooks until some are refused with the status, and gives the deliveries that were acknowledged.
func fill(t *testing.T, s *site, refusals ...int) (acknowledged []string) {
	t.Helper()
	refused := 0
	for i := 0; refused < 5; i++ {
		if i == 5000 {
			t.Fatal("5000 webhooks have found room")
		}
		status, answer := s.post("crash", fmt.Sprintf("fill-%d", i), padding(20_000))
		switch {
		case status == http.StatusAccepted:
			acknowledged = append(acknowledged, decode[deliveryView](t, answer).Delivery)
		case slices.Contains(refusals, status):
			refused++
		default:
			t.Fatalf("webhook %d: %d %s\n%s", i, status, answer, s.stderr)
		}
	}
	return acknowledged
}

// kept holds that every acknowledged delivery is in the store.
func kept(t *testing.T, s *site, acknowledged []string) {
	t.Helper()
	there := map[string]bool{}
	for _, d := range s.inbox() {
		there[d.Delivery] = true
	}
	for _, d := range acknowledged {
		if !there[d] {
			t.Errorf("acknowledged delivery %q is missing", d)
		}
	}
}

// smallDisk puts the data directory on a file system of its own; where that is not permitted it says so.
func smallDisk(t *testing.T, s *site, size string) (grow func(size string), mounted bool) {
	t.Helper()
	if err := os.MkdirAll(s.data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", s.data, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) {
			t.Fatal(err)
		}
		return nil, false
	}
	t.Cleanup(func() {
		s.kill()
		if err := syscall.Unmount(s.data, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return func(size string) {
		if err := syscall.Mount("tmpfs", s.data, "tmpfs", syscall.MS_REMOUNT, "mode=0700,size="+size); err != nil {
			t.Fatal(err)
		}
	}, true
}

// TestDiskFull fills the disk below a running server: it says 507, never 202 for what it cannot keep, goes on once there
// is room, and has lost nothing.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	s := newSite(t, "crash", definitionOf(t, "crash"))
	grow, mounted := smallDisk(t, s, "4m")
	if !mounted {
		t.Skip("not permitted to mount a small disk; TestFileSizeLimit tests the same with a limit")
	}
	s.serve()
	acknowledged := fill(t, s, http.StatusInsufficientStorage)
	if len(acknowledged) == 0 {
		t.Fatal("nothing was acknowledged before the disk was full")
	}
	kept(t, s, acknowledged)
	if s.dead() {
		t.Fatalf("the server died of a full disk:\n%s", s.stderr)
	}
	grow("64m")
	eventually(t, "a webhook is accepted again", func() bool {
		status, answer := s.post("crash", "after", padding(100))
		if status == http.StatusAccepted {
			acknowledged = append(acknowledged, decode[deliveryView](t, answer).Delivery)
		}
		return status == http.StatusAccepted
	})
	settled(t, s, acknowledged)
}

// settled waits until every run has ended, and holds that nothing is missing then.
func settled(t *testing.T, s *site, acknowledged []string) {
	t.Helper()
	eventually(t, "every run has ended", func() bool {
		for _, r := range s.runs() {
			if r.EndedAt == "" {
				return false
			}
		}
		return true
	})
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, s.stderr)
	}
	kept(t, s, acknowledged)
	s.healthy()
}

// TestFileSizeLimit is the same where nothing may be mounted: no file of the server may grow past a limit. The next
// server, without the limit, is the room that was made.
func TestFileSizeLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t, "crash", definitionOf(t, "crash"))
	s.serve("APOLLO_TEST_FSIZE=1048576")
	// SQLite takes this limit for an error of the disk, not for a full one.
	acknowledged := fill(t, s, http.StatusInsufficientStorage, http.StatusInternalServerError)
	kept(t, s, acknowledged)
	if s.dead() {
		t.Fatalf("the server died of a full disk:\n%s", s.stderr)
	}
	if info, err := os.Stat(filepath.Join(s.data, "apollo.db-wal")); err != nil || info.Size() > 1<<20 {
		t.Errorf("the limit was not in force: %v, %v", info, err)
	}
	// Not killed: that would leave half an artifact, which fsck names. What cannot be stored cannot be drained, so a second
	// signal ends the wait.
	_ = s.server.Process.Signal(syscall.SIGTERM)
	eventually(t, "it drains", func() bool { return s.dead() || strings.Contains(s.stderr.String(), "draining") })
	eventually(t, "a further signal ends the wait", func() bool {
		_ = s.server.Process.Signal(syscall.SIGTERM)
		return s.dead()
	})
	s.serve()
	settled(t, s, acknowledged)
}
