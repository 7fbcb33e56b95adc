package trigger

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// hints is what the kernel tells about a folder. It only makes the watcher look sooner, so that it may fail, end or
// overflow at any time.
type hints struct {
	source    *fsnotify.Watcher
	listening os.FileInfo // of the folder that is listened to; nil is none
	said      string      // the last complaint, so that it is made once
}

func (h *hints) events() <-chan fsnotify.Event {
	if h.source == nil {
		return nil
	}
	return h.source.Events
}

func (h *hints) errors() <-chan error {
	if h.source == nil {
		return nil
	}
	return h.source.Errors
}

// ended forgets a source that has ended by itself.
func (h *hints) ended() { h.source, h.listening = nil, nil }

func (h *hints) close() {
	if h.source != nil {
		_ = h.source.Close()
	}
	h.ended()
}

// listen makes hints come from the folder that is there now: it may have been removed and made anew since.
func (w *Watcher) listen() {
	folder, err := os.Stat(w.dir)
	if err != nil {
		w.hints.listening = nil
		return // the look at the folder says so
	}
	if w.hints.source != nil && os.SameFile(folder, w.hints.listening) {
		return
	}
	if err := w.hear(); err != nil {
		w.hints.close()
		w.complain("no file events: looking at the folder on a timer", err)
		return
	}
	w.hints.listening, w.hints.said = folder, ""
}

func (w *Watcher) hear() error {
	notify := w.Notify
	if notify == nil {
		notify = fsnotify.NewWatcher
	}
	var err error
	if w.hints.source == nil {
		w.hints.source, err = notify()
	}
	if err == nil {
		err = w.hints.source.Add(w.dir)
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) {
		err = fmt.Errorf("E_WATCH_LIMIT: the kernel's limit on watches is used up; raise it with sysctl fs.inotify.max_user_watches (and max_user_instances): %w", err)
	}
	return err
}

// complain logs a trouble that lasts once, not at every look.
func (w *Watcher) complain(what string, err error) {
	if said := what + err.Error(); w.hints.said != said {
		w.hints.said = said
		w.Logger.Warn().Err(err).Str("watch", w.Trigger.Watch).Dur("every", w.interval()).Msg(what)
	}
}

// interval is the time between two looks at the whole folder.
func (w *Watcher) interval() time.Duration {
	every := orDefault(w.Rescan, defaultRescan)
	if w.hints.listening == nil {
		return min(every, pollEvery)
	}
	return every
}
