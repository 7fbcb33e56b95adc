package trigger

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/apollo-11/apollo/events"
)

// sink takes every delivery and keeps none.
type sink struct{ arrived chan struct{} }

func (s sink) Accept(context.Context, *Delivery) (Receipt, error) {
	if s.arrived != nil {
		s.arrived <- struct{}{}
	}
	return Receipt{Delivery: numbered(1, 1), Run: numbered(2, 1), Fate: "run"}, nil
}

// BenchmarkHook posts a signed push of 6.9 kB: to a handler that only reads it, and to a hook.
func BenchmarkHook(b *testing.B) {
	v := vectorOf(b, "gh-push")
	hooks := NewHooks(sink{}, func(string) ([]string, error) { return v.secrets(), nil }, clockAt(0).now, zerolog.Nop())
	hooks.SetRoutes([]Route{{Pipeline: "p", Hook: events.WebhookTrigger{Path: "in", Scheme: "github", Secret: "secret://hook"}}})
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
	})
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{{"bare", bare}, {"apollo", hooks}} {
		b.Run(c.name, func(b *testing.B) {
			base, client := serve(b, c.handler)
			body, header := v.body(b), v.header()
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, base+"/hooks/in", bytes.NewReader(body))
				require.NoError(b, err)
				request.Header = header
				response, err := client.Do(request)
				require.NoError(b, err)
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				require.Equal(b, http.StatusAccepted, response.StatusCode)
			}
		})
	}
}

// BenchmarkDrop renames a file of 1 kB into a folder: until fsnotify tells of it, and until the inbox has it.
func BenchmarkDrop(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		f := newFolder(b, events.FileTrigger{Watch: "*.csv"})
		source, err := fsnotify.NewWatcher()
		require.NoError(b, err)
		defer source.Close()
		require.NoError(b, source.Add(f.dir))
		drops(b, f, func() {
			for e := range source.Events {
				if e.Has(fsnotify.Create) {
					return
				}
			}
		})
	})
	b.Run("apollo", func(b *testing.B) {
		f := newFolder(b, events.FileTrigger{Watch: "*.csv"})
		s := sink{make(chan struct{}, 1)}
		f.w.Inbox = s
		f.w.Clock = time.Now
		f.start()
		drops(b, f, func() { <-s.arrived })
		f.stop()
	})
}

// drops measures from the rename until wait returns; making the file is not measured.
func drops(b *testing.B, f *folder, wait func()) {
	b.Helper()
	content := bytes.Repeat([]byte("x"), 1000)
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		name := fmt.Sprintf("%d.csv", n)
		from, to := filepath.Join(f.beside, name), filepath.Join(f.dir, name)
		require.NoError(b, os.WriteFile(from, content, 0o600))
		b.StartTimer()
		require.NoError(b, os.Rename(from, to))
		wait()
	}
}
