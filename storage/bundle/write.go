package bundle

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// Write writes a run as one file: the run as far as its log goes, the runs that its stages started, the deliveries that
// they came from, their plans and their artifacts. It gives the manifest. The same log and artifacts give the same bytes.
// The log is read twice; an artifact is copied through and never held in memory.
func Write(ctx context.Context, to io.Writer, from Source, files Artifacts, o Options) (*Manifest, error) {
	g, err := gather(ctx, from, files, o)
	if err != nil {
		return nil, err
	}
	w := &writer{zip: zip.NewWriter(to), gatherer: g}
	if err := errors.Join(w.all(ctx), w.zip.Close()); err != nil {
		return nil, err
	}
	return &g.m, nil
}

type writer struct {
	*gatherer
	zip *zip.Writer
}

func (w *writer) all(ctx context.Context) error {
	b, err := w.m.encode()
	if err != nil {
		return err
	}
	if err := w.bytes(manifestName, b); err != nil {
		return err
	}
	if err := w.events(ctx); err != nil {
		return err
	}
	for _, p := range w.m.Plans {
		if err := w.bytes(planDir+plain(p.Digest), w.plans[p.Digest]); err != nil {
			return err
		}
	}
	for _, a := range w.m.Artifacts {
		if err := w.copy(ctx, a); err != nil {
			return fmt.Errorf("export artifact %s: %w", a.Digest, err)
		}
	}
	return nil
}

// entry begins an entry. Time and kind of system are fixed: they are no part of what is carried.
func (w *writer) entry(name string) (io.Writer, error) {
	return w.zip.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)})
}

func (w *writer) bytes(name string, b []byte) error {
	to, err := w.entry(name)
	if err == nil {
		_, err = to.Write(b)
	}
	return err
}

func (w *writer) events(ctx context.Context) error {
	to, err := w.entry(logName)
	if err != nil {
		return err
	}
	written := newSizer()
	both := io.MultiWriter(to, &written)
	stream := func(id events.ID, until uint64) {
		if err == nil {
			_, err = render(ctx, w.from, id, until, both, nil)
		}
	}
	for i := range w.m.Runs {
		stream(w.m.Runs[i].Run, w.m.Runs[i].Events)
	}
	for i := range w.m.Deliveries {
		stream(w.m.Deliveries[i].Delivery, w.m.Deliveries[i].Events)
	}
	if err == nil && written.digest() != w.m.Log.Digest {
		err = fmt.Errorf("export events: %w: the log changed while it was read", storage.ErrCorrupt)
	}
	return err
}

// copy writes an artifact; what was read must be what the digest says.
func (w *writer) copy(ctx context.Context, a Content) (err error) {
	if document := w.inline[a.Digest]; document != nil {
		return w.bytes(artifactDir+plain(a.Digest), document)
	}
	r, err := w.files.Get(a.Digest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	to, err := w.entry(artifactDir + plain(a.Digest))
	if err != nil {
		return err
	}
	n, err := io.Copy(to, reading{ctx, r})
	if err == nil && n != a.Size {
		err = fmt.Errorf("%w: %d bytes where %d were due", storage.ErrCorrupt, n, a.Size)
	}
	return err
}

// reading stops a copy when the context ends.
type reading struct {
	ctx context.Context //nolint:containedctx // of one copy
	r   io.Reader
}

func (r reading) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
