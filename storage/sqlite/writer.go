package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
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
	tables   map[*table]*[len(sizes)]*sqlite3.SQLiteStmt
	args     []driver.NamedValue // of the statement that is being bound
	sum      eventSum
	fatal    error
	topics   map[string]int64
	heads    map[events.ID]uint64 // last sequence of streams that go on; what is not here is looked up
	position int64                // of the last event or message written
	written  int64                // rows since the last checkpoint
	usual    int                  // rows of a transaction, times 16, as of late
	limit    int                  // pages of the write-ahead log at which it is moved into the file
}

type commit struct {
	batch *storage.Batch
	done  bool
	err   error
}

const mergeRows = 4096 // rows after which a transaction takes in no further commit

func (w *writer) init(s *Store, conn *sqlite3.SQLiteConn) {
	w.store, w.conn, w.position = s, conn, s.head.Load()
	w.stmts, w.tables = map[string]*sqlite3.SQLiteStmt{}, map[*table]*[len(sizes)]*sqlite3.SQLiteStmt{}
	w.topics, w.heads = map[string]int64{}, map[events.ID]uint64{}
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

	err := w.transaction(group, false)
	if again := len(group) > 1 || errors.Is(err, storage.ErrConflict); err != nil && again && w.fatal == nil && !errors.Is(err, storage.ErrFull) {
		for _, c := range group { // one caller's mistake is not another's
			c.err, c.done = w.transaction([]*commit{c}, true), true
		}
		return
	}
	for _, c := range group {
		c.err, c.done = err, true
	}
}

// transaction stores commits: at first as if every place in the log were free, and with care when that has failed.
func (w *writer) transaction(group []*commit, careful bool) error {
	if w.fatal != nil {
		return w.fatal
	}
	if err := w.failpoint("begin"); err != nil {
		return err
	}
	if err := w.exec("BEGIN IMMEDIATE"); err != nil {
		return w.classify(err)
	}
	err := w.write(group, careful)
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
	w.pace(group)
	return nil
}

// Pages of the write-ahead log. A log that grows makes each fsync write the file's size too, which takes a third of a
// small commit: it is moved into the file early and begun anew in its place. Large commits pay for pages instead, and
// the longer the log the more of its pages are moved once for many changes.
const (
	shortLog = 4000
	longLog  = 16_000
	manyRows = 64 // of a transaction, for a long log
)

// pace chooses the length of the log by what is usually in a transaction.
func (w *writer) pace(group []*commit) {
	for _, c := range group {
		w.usual += c.batch.Rows()
	}
	w.usual -= w.usual / 16
	limit := shortLog
	if w.usual >= 16*manyRows {
		limit = longLog
	}
	if limit == w.limit {
		return
	}
	if err := w.exec(fmt.Sprintf("PRAGMA wal_autocheckpoint=%d", limit)); err != nil {
		w.store.o.Logger.Warn().Err(err).Msg("set the length of the write-ahead log")
		return
	}
	w.limit = limit
}

func (w *writer) write(group []*commit, careful bool) error {
	appendLog := w.appendAll
	if careful {
		appendLog = w.appendEach
		last, err := strconv.ParseInt(w.text(`SELECT coalesce(max(position), 0) FROM events`), 10, 64)
		if err != nil {
			return fmt.Errorf("read the last position: %w", err)
		}
		w.position = last // another store may have written
	}
	for _, c := range group {
		if err := w.writeBatch(c.batch, appendLog); err != nil && !errors.Is(err, errStored) {
			return err
		}
		w.written += int64(c.batch.Rows())
	}
	return nil
}

// writeBatch stores a batch. One whose events are all there already was stored before, as a whole: it changes nothing.
func (w *writer) writeBatch(b *storage.Batch, appendLog func([]storage.Sealed) error) error {
	for i := range b.Plans {
		if err := w.run(insertPlan, b.Plans[i].Digest[:], b.Plans[i].Pipeline, b.Plans[i].Bytes); err != nil {
			return err
		}
	}
	if err := appendLog(b.Events); err != nil {
		return err
	}
	return w.writeRows(b)
}

func (w *writer) writeRows(b *storage.Batch) error {
	for i := range b.Messages {
		if err := w.message(&b.Messages[i]); err != nil {
			return err
		}
	}
	err := w.put(&runTable, len(b.Runs), func(i int) { w.bindRun(&b.Runs[i]) })
	if err == nil {
		err = w.put(&stageTable, len(b.Stages), func(i int) { w.bindStage(&b.Stages[i]) })
	}
	if err == nil {
		err = w.put(&deliveryTable, len(b.Deliveries), func(i int) { w.bindDelivery(&b.Deliveries[i]) })
	}
	for i := 0; err == nil && i < len(b.Results); i++ {
		r := &b.Results[i]
		err = w.run(insertResult, r.Key[:], r.Run[:], int64(r.Sequence)) //nolint:gosec // small
	}
	for i := 0; err == nil && i < len(b.Parked); i++ {
		p := &b.Parked[i]
		err = w.run(insertParked, p.Event[:], p.Stream[:], p.Handler, p.Reason, p.At, sumParked(p))
	}
	for i := 0; err == nil && i < len(b.Cursors); i++ {
		c := &b.Cursors[i]
		err = w.run(moveCursor, c.Topic, c.Group, c.Position, sumCursor(c.Topic, c.Group, c.Position))
	}
	return err
}

// errStored says that a batch is in the store already.
var errStored = errors.New("stored before")

// appendEach stores a batch's events one at a time, or gives errStored when all of them are there.
func (w *writer) appendEach(log []storage.Sealed) error {
	isNew := len(log) == 0
	for i := range log {
		appended, err := w.append(&log[i])
		if err != nil {
			return err
		}
		isNew = isNew || appended
	}
	if !isNew {
		return errStored
	}
	return nil
}

// append stores one event. The same event at the same place is a success; another one there, or a gap before it, is a
// conflict.
func (w *writer) append(e *storage.Sealed) (appended bool, err error) {
	if err := w.follows(e); err != nil {
		return false, err
	}
	var there events.ID
	found, err := w.lookup(eventAt, there[:], e.Stream[:], int64(e.Sequence)) //nolint:gosec // sequences are small
	switch {
	case err != nil:
		return false, err
	case found && there == e.ID:
		return false, nil
	case found:
		return false, fmt.Errorf("append event %d of %s: %w: taken by event %s", e.Sequence, e.Stream, storage.ErrConflict, there)
	}
	w.remember(e)
	return true, w.put(&eventTable, 1, func(int) { w.bindEvent(e) })
}

// follows reports as a conflict that the event before is missing.
func (w *writer) follows(e *storage.Sealed) error {
	if e.Sequence == 0 {
		return fmt.Errorf("append event 0 of %s: %w: a stream begins with 1", e.Stream, storage.ErrConflict)
	}
	if e.Sequence == 1 || w.heads[e.Stream] == e.Sequence-1 {
		return nil
	}
	var before events.ID
	found, err := w.lookup(eventAt, before[:], e.Stream[:], int64(e.Sequence-1)) //nolint:gosec // sequences are small
	if err == nil && !found {
		err = fmt.Errorf("append event %d of %s: %w: a gap before it", e.Sequence, e.Stream, storage.ErrConflict)
	}
	return err
}

// remember keeps the last sequence of a stream that goes on.
func (w *writer) remember(e *storage.Sealed) {
	if e.Type == events.RunCompleted || e.Type == events.RunFailed || e.Type == events.RunCancelled || e.Type <= events.DeliveryImported || e.Type.AfterEnd() {
		delete(w.heads, e.Stream)
		return
	}
	w.heads[e.Stream] = e.Sequence
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
	case e.ExtendedCode == sqlite3.ErrConstraintCheck:
		return fmt.Errorf("E_INVARIANT: a row may not become that: %w", err)
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
	for _, kept := range w.tables {
		for _, st := range kept {
			if st != nil {
				errs = append(errs, st.Close())
			}
		}
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
