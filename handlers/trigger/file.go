package trigger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
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
	hints   hints
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
	open     bool // it was open for writing when last looked at
	gone     bool // it was not there when last looked at
	reported bool
}

type result struct {
	name  string
	print Fingerprint
	outcome
}

const (
	defaultRescan  = 30 * time.Second
	pollEvery      = 2 * time.Second // without hints
	defaultMaxWait = time.Hour
	openWait       = 100 * time.Millisecond // until a file that is open for writing is looked at again
	goneWait       = time.Second            // until a name that is gone is given up: it may turn up under another one
	sealers        = 4
)

// wait is how long the candidate must stay as it is.
func (c *candidate) wait(settle time.Duration) time.Duration {
	switch {
	case c.gone:
		return max(settle, goneWait)
	case c.open:
		return max(settle, openWait)
	}
	return settle
}

// Run watches until the context ends. It returns early only when the folder cannot be read at the start.
func (w *Watcher) Run(ctx context.Context) error {
	w.dir, w.glob = filepath.Split(w.Trigger.Watch)
	w.dir = filepath.Clean(w.dir)
	w.waiting, w.slots, w.results = map[string]*candidate{}, make(chan struct{}, sealers), make(chan result, sealers)
	w.handled = map[string]Fingerprint{}
	if w.Seen != nil {
		w.recall()
	}
	defer w.hints.close()
	defer w.busy.Wait()
	if err := w.scan(ctx); err != nil {
		return fmt.Errorf("watch %s: %w", w.Trigger.Watch, err)
	}
	rescan, settle := time.NewTimer(w.interval()), time.NewTimer(time.Hour)
	defer rescan.Stop()
	defer settle.Stop()
	for ctx.Err() == nil {
		settle.Reset(w.nextLook())
		if !w.turn(ctx, settle.C, rescan.C) {
			continue
		}
		if err := w.scan(ctx); err != nil {
			w.complain("look at the watched folder", err)
		}
		rescan.Reset(w.interval())
	}
	return nil
}

// turn waits for the next thing to do and does it. It says whether the whole folder has to be looked at.
func (w *Watcher) turn(ctx context.Context, settle, rescan <-chan time.Time) (scan bool) {
	select {
	case <-ctx.Done():
	case hint, ok := <-w.hints.events():
		switch {
		case !ok:
			w.hints.ended()
		case hint.Name == w.dir:
			if !hint.Has(fsnotify.Remove) && !hint.Has(fsnotify.Rename) {
				return false
			}
			w.hints.listening = nil // a new folder may have the old one's inode
			return true
		default:
			w.look(ctx, filepath.Base(hint.Name))
		}
	case err, ok := <-w.hints.errors():
		if !ok {
			w.hints.ended()
			return false
		}
		w.Logger.Warn().Err(err).Str("watch", w.Trigger.Watch).Msg("file events were lost; looking at the whole folder")
		return true
	case r := <-w.results:
		w.settled(ctx, r)
	case <-settle:
		w.lookAtWaiting(ctx)
	case <-rescan:
		return true
	}
	return false
}

// recall takes what earlier starts handled and is still there.
func (w *Watcher) recall() {
	w.handled = w.Seen.Load()
	maps.DeleteFunc(w.handled, func(name string, _ Fingerprint) bool {
		_, err := os.Lstat(filepath.Join(w.dir, name))
		return errors.Is(err, fs.ErrNotExist)
	})
	if err := w.Seen.Keep(w.handled); err != nil {
		w.Logger.Warn().Err(err).Str("watch", w.Trigger.Watch).Msg("shorten the list of handled files")
	}
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// scan looks at every name in the folder and forgets handled files that are gone.
func (w *Watcher) scan(ctx context.Context) error {
	w.listen()
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
	if errors.Is(err, fs.ErrNotExist) {
		w.missing(ctx, name, c)
		return
	}
	if err != nil {
		delete(w.waiting, name) // the look at the whole folder says why
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
	if c.print != mark || c.gone {
		c.print, c.since, c.gone = mark, now, false
	}
	still := now.Sub(c.since) >= c.wait(w.Trigger.Settle)
	if (!still || c.open) && !c.reported && now.Sub(c.first) > orDefault(w.MaxWait, defaultMaxWait) {
		c.reported = w.accept(ctx, w.refusal(name, mark, &Refusal{"E_DROP_UNSTABLE", "the file does not stand still; it is taken once it does"})) == taken
	}
	switch why := wrongType(info); {
	case still && why != nil:
		w.refuse(ctx, name, c, why)
	case still:
		w.seal(ctx, name, c)
	}
}

// missing waits a moment for a name that is gone, because a renamed file may only turn up under its new name next. Then
// it says that a file went before it was read. Of a name that was never seen as a file there is nothing to say.
func (w *Watcher) missing(ctx context.Context, name string, c *candidate) {
	now := w.Clock()
	switch {
	case c == nil:
	case !c.gone:
		c.gone, c.since = true, now
	case now.Sub(c.since) < c.wait(w.Trigger.Settle):
	case w.moved(c.print) || w.accept(ctx, w.refusal(name, c.print, &Refusal{"E_DROP_GONE", "the file went before it was read"})) == taken:
		delete(w.waiting, name)
	}
}

// moved says whether the folder has the file under another name.
func (w *Watcher) moved(mark Fingerprint) bool {
	is := func(name string, other Fingerprint) bool {
		mark.Change = other.Change // a rename moves it
		if other != mark {
			return false
		}
		info, err := os.Lstat(filepath.Join(w.dir, name))
		return err == nil && fingerprint(info).Inode == mark.Inode
	}
	for name, other := range w.handled {
		if is(name, other) {
			return true
		}
	}
	for name, c := range w.waiting {
		if is(name, c.print) {
			return true
		}
	}
	return false
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
			next = min(next, max(time.Millisecond, c.wait(w.Trigger.Settle)-now.Sub(c.since)))
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
		o := w.deliver(ctx, name, mark)
		if o == taken {
			w.save(name, mark) // here, so that a stop between the result and the loop forgets nothing
		}
		<-w.slots
		select {
		case w.results <- result{name, mark, o}:
		case <-ctx.Done():
		}
	})
}

func (w *Watcher) name() string { return "file:" + w.Trigger.Watch }

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
	c := w.waiting[r.name]
	c.sealing, c.open = false, r.outcome == open
	switch r.outcome {
	case taken:
		delete(w.waiting, r.name)
		w.handled[r.name] = r.print
	case open:
		c.since = w.Clock()
	case again:
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
	if w.accept(ctx, w.refusal(name, c.print, why)) == taken {
		w.handled[name] = c.print
		w.save(name, c.print)
	}
}
