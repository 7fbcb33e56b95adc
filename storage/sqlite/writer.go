package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// writer is the only one that writes. Commits that wait are merged into one transaction by whichever caller gets hold
// of the connection first; an idle store costs its caller no hand-over.
type writer struct {
	store *Store
	conn  *sqlite3.SQLiteConn

	queueLock sync.Mutex
	queue     []*commit

	connLock sync.Mutex // held by the caller that writes
	stmts    map[string]*sqlite3.SQLiteStmt
	fatal    error
	topics   map[string]int64
	heads    map[events.ID]uint64 // last sequence of streams that go on; what is not here is looked up
	position int64                // of the last event or message written
	written  int64                // rows since the last checkpoint
}

type commit struct {
	batch *storage.Batch
	done  bool
	err   error
}

const mergeRows = 4096 // rows after which a transaction takes in no further commit

func (w *writer) init(s *Store, conn *sqlite3.SQLiteConn) {
	w.store, w.conn, w.position = s, conn, s.head.Load()
	w.stmts, w.topics, w.heads = map[string]*sqlite3.SQLiteStmt{}, map[string]int64{}, map[events.ID]uint64{}
}

// Commit stores a batch durably, alone or merged with others that wait.
func (s *Store) Commit(b *storage.Batch) error {
	w := &s.writer
	if w.conn == nil {
		return fmt.Errorf("commit: %w: opened for reading", storage.ErrClosed)
	}
	c := &commit{batch: b}
	w.queueLock.Lock()
	w.queue = append(w.queue, c)
	w.queueLock.Unlock()
	w.connLock.Lock()
	defer w.connLock.Unlock()
	for !c.done {
		w.lead()
	}
	return c.err
}

// lead stores the first of the queue and whoever else fits into the transaction.
func (w *writer) lead() {
	w.queueLock.Lock()
	n, rows := 0, 0
	for n < len(w.queue) && (n == 0 || rows < mergeRows) {
		rows += w.queue[n].batch.Rows()
		n++
	}
	group := w.queue[:n:n]
	w.queue = w.queue[n:]
	if len(w.queue) == 0 {
		w.queue = nil
	}
	w.queueLock.Unlock()

	err := w.transaction(group)
	if err != nil && len(group) > 1 && w.fatal == nil && !errors.Is(err, storage.ErrFull) {
		for _, c := range group { // one caller's mistake is not another's
			c.err = w.transaction([]*commit{c})
			c.done = true
		}
		return
	}
	for _, c := range group {
		c.err, c.done = err, true
	}
}

func (w *writer) transaction(group []*commit) error {
	if w.fatal != nil {
		return w.fatal
	}
	if err := w.failpoint("begin"); err != nil {
		return err
	}
	if err := w.exec("BEGIN IMMEDIATE"); err != nil {
		return w.classify(err)
	}
	err := w.write(group)
	if err == nil {
		err = w.failpoint("commit")
	}
	if err == nil {
		err = w.exec("COMMIT")
	}
	if err != nil {
		if !w.conn.AutoCommit() {
			err = errors.Join(err, w.exec("ROLLBACK"))
		}
		clear(w.topics)
		clear(w.heads)
		w.position = w.store.head.Load()
		return w.classify(err)
	}
	if err := w.failpoint("committed"); err != nil {
		return err
	}
	w.store.head.Store(w.position)
	w.store.wakes.signal()
	return nil
}

func (w *writer) write(group []*commit) error {
	for _, c := range group {
		if err := w.writeBatch(c.batch); err != nil {
			return err
		}
		w.written += int64(c.batch.Rows())
	}
	return nil
}

// writeBatch stores a batch. One whose events are all there already was stored before, as a whole: it changes nothing.
func (w *writer) writeBatch(b *storage.Batch) error {
	for i := range b.Plans {
		if err := w.run(insertPlan, b.Plans[i].Digest[:], b.Plans[i].Pipeline, b.Plans[i].Bytes); err != nil {
			return err
		}
	}
	isNew := len(b.Events) == 0
	for i := range b.Events {
		appended, err := w.append(&b.Events[i])
		if err != nil {
			return err
		}
		isNew = isNew || appended
	}
	if !isNew {
		return nil
	}
	return w.writeRows(b)
}

func (w *writer) writeRows(b *storage.Batch) error {
	for i := range b.Messages {
		if err := w.message(&b.Messages[i]); err != nil {
			return err
		}
	}
	for i := range b.Runs {
		if err := w.runRow(&b.Runs[i]); err != nil {
			return err
		}
	}
	for i := range b.Stages {
		if err := w.stageRow(&b.Stages[i]); err != nil {
			return err
		}
	}
	for i := range b.Deliveries {
		if err := w.deliveryRow(&b.Deliveries[i]); err != nil {
			return err
		}
	}
	for i := range b.Parked {
		p := &b.Parked[i]
		if err := w.run(insertParked, p.Event[:], p.Stream[:], p.Handler, p.Reason, p.At, sumParked(p)); err != nil {
			return err
		}
	}
	for i := range b.Cursors {
		c := &b.Cursors[i]
		if err := w.run(moveCursor, c.Topic, c.Group, c.Position, sumCursor(c.Topic, c.Group, c.Position)); err != nil {
			return err
		}
	}
	return nil
}

// append stores one event. The same event at the same place is a success; another one there, or a gap before it, is a
// conflict.
func (w *writer) append(e *storage.Sealed) (appended bool, err error) {
	if e.Sequence == 0 {
		return false, fmt.Errorf("append event 0 of %s: %w: a stream begins with 1", e.Stream, storage.ErrConflict)
	}
	if e.Sequence > 1 && w.heads[e.Stream] != e.Sequence-1 {
		var before events.ID
		found, err := w.lookup(eventAt, before[:], e.Stream[:], int64(e.Sequence-1)) //nolint:gosec // sequences are small
		if err != nil {
			return false, err
		}
		if !found {
			return false, fmt.Errorf("append event %d of %s: %w: a gap before it", e.Sequence, e.Stream, storage.ErrConflict)
		}
	}
	n, err := w.insert(appendEvent, int64(e.Type), e.Stream[:], int64(e.Sequence), e.ID[:], e.Time, blob(e.Cause[:]), blob(e.Prev[:]), nonNil(e.Encoded), sumEvent(&e.Event, e.Encoded)) //nolint:gosec // as above
	if err != nil {
		return false, err
	}
	if n == 0 {
		return false, w.sameEvent(e)
	}
	if e.Type == events.RunCompleted || e.Type == events.RunFailed || e.Type == events.RunCancelled || e.Type <= events.DeliveryIgnored {
		delete(w.heads, e.Stream)
		return true, nil
	}
	w.heads[e.Stream] = e.Sequence
	return true, nil
}

func (w *writer) sameEvent(e *storage.Sealed) error {
	var id events.ID
	found, err := w.lookup(eventAt, id[:], e.Stream[:], int64(e.Sequence)) //nolint:gosec // sequences are small
	switch {
	case err != nil:
		return err
	case found && id == e.ID:
		return nil
	}
	return fmt.Errorf("append event %d of %s: %w: taken by event %s", e.Sequence, e.Stream, storage.ErrConflict, id)
}

// run executes a prepared statement that is kept for ever.
func (w *writer) run(query string, args ...driver.Value) error {
	_, err := w.count(query, args...)
	return err
}

func (w *writer) count(query string, args ...driver.Value) (int64, error) {
	st, err := w.prepare(query)
	if err != nil {
		return 0, err
	}
	result, err := st.Exec(args)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// insert adds a row to the log, or none when its place is taken.
func (w *writer) insert(query string, args ...driver.Value) (int64, error) {
	st, err := w.prepare(query)
	if err != nil {
		return 0, err
	}
	result, err := st.Exec(args)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	if err != nil || n == 0 { // then the last rowid is that of an earlier insert, even of one that was rolled back
		return 0, err
	}
	w.position, err = result.LastInsertId()
	return n, err
}

func (w *writer) prepare(query string) (*sqlite3.SQLiteStmt, error) {
	if st := w.stmts[query]; st != nil {
		return st, nil
	}
	prepared, err := w.conn.Prepare(query)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	st, ok := prepared.(*sqlite3.SQLiteStmt)
	if !ok {
		return nil, fmt.Errorf("driver gave a %T", prepared)
	}
	w.stmts[query] = st
	return st, nil
}

// lookup copies the first column of the first row into to.
func (w *writer) lookup(query string, to []byte, args ...driver.Value) (bool, error) {
	st, err := w.prepare(query)
	if err != nil {
		return false, err
	}
	rows, err := st.Query(args)
	if err != nil {
		return false, err
	}
	defer rows.Close() //nolint:errcheck // it can only repeat what Next said
	row := make([]driver.Value, 1)
	if err := rows.Next(row); err != nil {
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		return false, err
	}
	if b, ok := row[0].([]byte); ok {
		copy(to, b)
	}
	return true, nil
}

func (w *writer) exec(query string) error { return w.run(query) }

func (w *writer) failpoint(name string) error {
	if w.store.o.Fail == nil {
		return nil
	}
	return w.store.o.Fail(name)
}

// classify gives SQLite's errors their names. After a failed fsync nobody knows what the disk holds: the writer refuses
// everything from then on and the process is told to stop.
func (w *writer) classify(err error) error {
	var e sqlite3.Error
	switch {
	case !errors.As(err, &e):
		if errors.Is(err, storage.ErrFsync) {
			return w.stop(err)
		}
		return err
	case e.ExtendedCode == sqlite3.ErrIoErrFsync || e.ExtendedCode == sqlite3.ErrIoErrDirFsync:
		return w.stop(fmt.Errorf("%w: %w", storage.ErrFsync, err))
	case e.Code == sqlite3.ErrFull || e.Code == sqlite3.ErrIoErr && outOfSpace(e.SystemErrno):
		return fmt.Errorf("%w: %w", storage.ErrFull, err)
	case e.Code == sqlite3.ErrCorrupt || e.Code == sqlite3.ErrNotADB:
		return w.stop(fmt.Errorf("%w: %w", storage.ErrCorrupt, err))
	case e.ExtendedCode == sqlite3.ErrConstraintUnique || e.ExtendedCode == sqlite3.ErrConstraintPrimaryKey:
		return fmt.Errorf("%w: %w", storage.ErrConflict, err)
	}
	return err
}

// outOfSpace tells a full disk, quota or file size limit by what the kernel said: SQLite names ErrFull only the first,
// and that not for every file of the store.
func outOfSpace(errno syscall.Errno) bool {
	return errno == syscall.ENOSPC || errno == syscall.EDQUOT || errno == syscall.EFBIG
}

func (w *writer) stop(err error) error {
	w.fatal = err
	if w.store.o.OnFatal != nil {
		w.store.o.OnFatal(err)
	}
	return err
}

func (w *writer) close() error {
	if w.conn == nil {
		return nil
	}
	w.connLock.Lock()
	defer w.connLock.Unlock()
	for w.waiting() {
		w.lead()
	}
	var errs []error
	for _, st := range w.stmts {
		errs = append(errs, st.Close())
	}
	if w.fatal == nil {
		w.fatal = storage.ErrClosed
	}
	return errors.Join(append(errs, w.conn.Close())...)
}

func (w *writer) waiting() bool {
	w.queueLock.Lock()
	defer w.queueLock.Unlock()
	return len(w.queue) > 0
}

// checkpoints moves the write-ahead log into the file when it has grown, and sees whether it could.
func (s *Store) checkpoints() {
	ticker := time.NewTicker(30 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := s.writer.checkpoint(); err != nil {
				s.o.Logger.Warn().Err(err).Msg("checkpoint")
			}
		case <-s.life.Done():
			return
		}
	}
}

// checkpoint waits for no reader: whoever commits would wait with it.
func (w *writer) checkpoint() error {
	w.connLock.Lock()
	defer w.connLock.Unlock()
	if w.written == 0 || w.fatal != nil {
		return nil
	}
	busy, err := "", w.exec("PRAGMA busy_timeout=0")
	if err == nil {
		busy, err = oneText(w.conn, "PRAGMA wal_checkpoint(TRUNCATE)")
	}
	if err = errors.Join(err, w.exec("PRAGMA busy_timeout=5000")); err != nil {
		return w.classify(err)
	}
	if busy != "0" {
		return errors.New("E_STORE_WAL: a reader holds the write-ahead log; it grows until the reader ends")
	}
	w.written = 0
	return nil
}
