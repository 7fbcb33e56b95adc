package trigger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/events"
)

// Sealer keeps a dropped file's bytes before its run exists: the run never reads the folder again.
type Sealer interface {
	Seal(ctx context.Context, f *os.File) (events.Digest, int64, error)
}

// Watcher turns the files that arrive under one glob pattern into deliveries. It looks at the folder itself, at the
// start, on a timer and when the kernel says that events were lost; what fsnotify tells is only a hint to look sooner.
type Watcher struct {
	Pipeline string
	Trigger  events.FileTrigger
	Inbox    Inbox
	Sealer   Sealer
	Seen     *Seen // may be nil: then a restart reads every file again and finds duplicates
	Clock    func() time.Time
	Logger   zerolog.Logger
	Rescan   time.Duration // 0 is 30 s
	MaxWait  time.Duration // a file that never stands still is reported after this; 0 is 1 h
	// Notify makes the source of hints; nil is fsnotify. Tests make it fail.
	Notify func() (*fsnotify.Watcher, error)

	dir     string
	glob    string
	handled map[string]Fingerprint
	waiting map[string]*candidate
	slots   chan struct{}
	results chan result
	busy    sync.WaitGroup
}

// candidate is a file that is not taken yet.
type candidate struct {
	print    Fingerprint
	since    time.Time // when it was seen as it is now
	first    time.Time
	sealing  bool
	reported bool
}

type result struct {
	name  string
	print Fingerprint
	done  bool // handled, as it was; else look again
}

const (
	defaultRescan  = 30 * time.Second
	defaultMaxWait = time.Hour
	sealers        = 4
)

// Run watches until the context ends. It returns early only when the folder cannot be read at all.
func (w *Watcher) Run(ctx context.Context) error {
	w.dir, w.glob = filepath.Split(w.Trigger.Watch)
	w.dir = filepath.Clean(w.dir)
	w.waiting, w.slots, w.results = map[string]*candidate{}, make(chan struct{}, sealers), make(chan result, sealers)
	w.handled = map[string]Fingerprint{}
	if w.Seen != nil {
		w.handled = w.Seen.Load()
	}
	hints, lost, closeHints := w.hints()
	defer closeHints()
	defer w.busy.Wait()
	if err := w.scan(ctx); err != nil {
		return fmt.Errorf("watch %s: %w", w.Trigger.Watch, err)
	}
	rescan := time.NewTicker(orDefault(w.Rescan, defaultRescan))
	defer rescan.Stop()
	settle := time.NewTimer(time.Hour)
	defer settle.Stop()
	for {
		settle.Reset(w.nextLook())
		select {
		case <-ctx.Done():
			return nil
		case hint, ok := <-hints:
			if !ok {
				hints = nil
				continue
			}
			w.look(ctx, filepath.Base(hint.Name))
			continue
		case err, ok := <-lost:
			if !ok {
				lost = nil
				continue
			}
			if err != nil {
				w.Logger.Warn().Err(err).Str("watch", w.Trigger.Watch).Msg("file events were lost; looking at the whole folder")
			}
		case r := <-w.results:
			w.settled(ctx, r)
			continue
		case <-settle.C:
			w.lookAtWaiting(ctx)
			continue
		case <-rescan.C:
		}
		if err := w.scan(ctx); err != nil {
			w.Logger.Error().Err(err).Str("watch", w.Trigger.Watch).Msg("look at the watched folder")
		}
	}
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// hints begins to listen. Without hints the timer alone finds the files.
func (w *Watcher) hints() (<-chan fsnotify.Event, <-chan error, func()) {
	notify := w.Notify
	if notify == nil {
		notify = fsnotify.NewWatcher
	}
	source, err := notify()
	if err == nil {
		if err = source.Add(w.dir); err == nil {
			return source.Events, source.Errors, func() { _ = source.Close() }
		}
		_ = source.Close()
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) {
		err = fmt.Errorf("E_WATCH_LIMIT: the kernel's limit on watches is used up; raise it with sysctl fs.inotify.max_user_watches (and max_user_instances): %w", err)
	}
	w.Logger.Warn().Err(err).Str("watch", w.Trigger.Watch).Dur("every", orDefault(w.Rescan, defaultRescan)).Msg("no file events: looking at the folder on a timer")
	return nil, nil, func() {}
}

// scan looks at every name in the folder and forgets handled files that are gone.
func (w *Watcher) scan(ctx context.Context) error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(entries))
	for _, e := range entries {
		there[e.Name()] = true
		w.look(ctx, e.Name())
	}
	for name := range w.handled {
		if !there[name] {
			delete(w.handled, name)
		}
	}
	return nil
}

// look decides about one name.
func (w *Watcher) look(ctx context.Context, name string) {
	if match, err := filepath.Match(w.glob, name); err != nil || !match || temporary(name) {
		return
	}
	c := w.waiting[name]
	if c != nil && c.sealing {
		return // its result makes it be looked at again
	}
	info, err := os.Lstat(filepath.Join(w.dir, name))
	if err != nil {
		delete(w.waiting, name) // gone before it was read: there is nothing to run on
		return
	}
	mark := fingerprint(info)
	if w.handled[name] == mark {
		delete(w.waiting, name)
		return
	}
	now := w.Clock()
	if c == nil {
		c = &candidate{first: now}
		w.waiting[name] = c
	}
	if c.print != mark {
		c.print, c.since = mark, now
	}
	why, still := unfit(info, w.Trigger.AllowEmpty), now.Sub(c.since) >= w.Trigger.Settle
	switch {
	case still && why != nil:
		w.refuse(ctx, name, c, why)
	case still:
		w.seal(ctx, name, c)
	case now.Sub(c.first) > orDefault(w.MaxWait, defaultMaxWait) && !c.reported:
		c.reported = true
		w.Logger.Warn().Str("file", name).Msg("E_DROP_UNSTABLE: the file does not stand still; it is taken once it does")
	}
}

func (w *Watcher) lookAtWaiting(ctx context.Context) {
	for name := range w.waiting {
		w.look(ctx, name)
	}
}

// nextLook is when the first waiting file may have stood still for long enough. While every place is taken there is no
// use in looking; the next result does.
func (w *Watcher) nextLook() time.Duration {
	if len(w.slots) == cap(w.slots) {
		return time.Hour
	}
	next, now := time.Hour, w.Clock()
	for _, c := range w.waiting {
		if !c.sealing {
			next = min(next, max(time.Millisecond, w.Trigger.Settle-now.Sub(c.since)))
		}
	}
	return next
}

// seal reads a file and brings it to the inbox, beside the watching.
func (w *Watcher) seal(ctx context.Context, name string, c *candidate) {
	select {
	case w.slots <- struct{}{}:
	default:
		return // the next result makes room and looks again
	}
	c.sealing = true
	mark := c.print
	w.busy.Go(func() {
		done := w.deliver(ctx, name, mark)
		if done {
			w.save(name, mark) // here, so that a stop between the result and the loop forgets nothing
		}
		<-w.slots
		select {
		case w.results <- result{name, mark, done}:
		case <-ctx.Done():
		}
	})
}

// deliver seals the bytes, makes sure that they were not written meanwhile, and waits until the inbox has them.
func (w *Watcher) deliver(ctx context.Context, name string, mark Fingerprint) bool {
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			w.Logger.Error().Err(err).Str("file", name).Msg("open a dropped file; it is tried again")
			w.pause(ctx)
		}
		return false
	}
	defer f.Close()
	digest, size, err := w.Sealer.Seal(ctx, f)
	if err != nil {
		w.Logger.Error().Err(err).Str("file", name).Msg("keep a dropped file; it is tried again")
		w.pause(ctx)
		return false
	}
	if info, err := f.Stat(); err != nil || fingerprint(info) != mark || size != mark.Size {
		return false // written while it was read: it has to stand still first
	}
	return w.accept(ctx, &Delivery{Kind: "file", Trigger: w.name(), Pipeline: w.Pipeline, Key: name + "\x00" + digest.String(),
		File: &File{Name: name, Digest: digest, Size: size}})
}

func (w *Watcher) name() string { return "file:" + w.Trigger.Watch }

// accept brings a delivery to the inbox; a full queue or disk delays it and does not lose it. After another error the
// file is looked at again, behind the others: one that can never be stored must not hold a place.
func (w *Watcher) accept(ctx context.Context, d *Delivery) bool {
	for {
		_, err := w.Inbox.Accept(ctx, d)
		if err == nil {
			return true
		}
		if !errors.Is(err, ErrBusy) && !errors.Is(err, ErrClosed) && ctx.Err() == nil {
			w.Logger.Error().Err(err).Str("file", d.File.Name).Msg("store a dropped file; it is tried again")
		}
		if !w.pause(ctx) || !errors.Is(err, ErrBusy) && !errors.Is(err, ErrFull) {
			return false
		}
	}
}

func (w *Watcher) pause(ctx context.Context) bool {
	select {
	case <-time.After(250 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

// settled takes the result of one file and uses the free place for the next.
func (w *Watcher) settled(ctx context.Context, r result) {
	delete(w.waiting, r.name)
	if r.done {
		w.handled[r.name] = r.print
	}
	for name, c := range w.waiting {
		if len(w.slots) == cap(w.slots) {
			break
		}
		if !c.sealing {
			w.look(ctx, name)
		}
	}
	w.look(ctx, r.name) // it may have changed meanwhile; last, as a file that fails comes behind the others
}

// save keeps a handled name for the next start.
func (w *Watcher) save(name string, mark Fingerprint) {
	if w.Seen == nil {
		return
	}
	if err := w.Seen.Save(name, mark); err != nil {
		w.Logger.Warn().Err(err).Str("file", name).Msg("remember a handled file; the next start reads it again")
	}
}

// refuse makes a thing that cannot be taken visible, once.
func (w *Watcher) refuse(ctx context.Context, name string, c *candidate, why *Refusal) {
	delete(w.waiting, name)
	d := &Delivery{Kind: "file", Trigger: w.name(), Pipeline: w.Pipeline, Key: "", File: &File{Name: name, Size: c.print.Size}, Refused: why}
	if w.accept(ctx, d) {
		w.handled[name] = c.print
		w.save(name, c.print)
	}
}

// unfit says why something in the folder is no file to take: only plain files with one name are.
func unfit(info fs.FileInfo, allowEmpty bool) *Refusal {
	if !info.Mode().IsRegular() {
		return &Refusal{Code: "E_DROP_TYPE", Reason: "only plain files are taken, not " + info.Mode().Type().String()}
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		return &Refusal{Code: "E_DROP_TYPE", Reason: "the file has a second name (hard link) and could change after it was read"}
	}
	if info.Size() == 0 && !allowEmpty {
		return &Refusal{Code: "E_DROP_EMPTY", Reason: "the file has no bytes; allow_empty takes such files"}
	}
	return nil
}
