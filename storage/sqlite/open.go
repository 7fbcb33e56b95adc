package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mattn/go-sqlite3"
	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/storage"
)

// FileName is the store's file in the data directory.
const FileName = "apollo.db"

// Options are what a store needs from outside. The zero value works.
type Options struct {
	Clock   func() time.Time
	Logger  zerolog.Logger
	OnFatal func(error)              // called once when an fsync failed: the process must stop
	Fail    func(point string) error // failpoints for tests: begin, commit, committed; nil in production

	// Redeliveries is how often a subscriber delivers a refused Apollo event again before it parks it. 0 is for ever.
	Redeliveries int
}

var _ storage.Store = (*Store)(nil)

// Store is a storage.Store on SQLite.
type Store struct {
	reads

	o    Options
	dir  string
	path string
	read *sql.DB
	keys keys

	warning string // of the write-ahead log, when nobody has recovered it yet

	writer  writer
	head    atomic.Int64
	wakes   wakes
	turns   turns
	life    context.Context // ends with Close
	end     context.CancelFunc
	closed  sync.Once
	joining sync.Mutex // between Go and Wait of tasks
	tasks   sync.WaitGroup
}

func newStore(dir string, o Options) *Store {
	s := &Store{o: o, dir: dir, path: filepath.Join(dir, FileName)}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// task runs something that Close waits for. It gives false when the store is closed.
func (s *Store) task(run func()) bool {
	s.joining.Lock()
	defer s.joining.Unlock()
	if s.life.Err() != nil {
		return false
	}
	s.tasks.Go(run)
	return true
}

// pragmas are what every connection must have, and what is read back from it.
const (
	writeOptions = "_journal_mode=WAL&_synchronous=FULL&_busy_timeout=5000&_txlock=immediate&_foreign_keys=on&_mutex=no" // each connection has one user at a time
	readOptions  = "mode=ro&_query_only=1&_busy_timeout=5000&_mutex=no"
	readers      = 4
)

func dsn(path, options string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + options
}

// Open opens the store of a data directory, and makes it when there is none. An older schema is upgraded with a backup
// beside it; a newer one is refused with storage.ErrNewer and left as it is.
func Open(dir string, o Options) (*Store, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	path := filepath.Join(dir, FileName)
	if err := prepareFile(dir, path); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	_, warning, err := inspect(path, true)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	if warning != "" {
		o.Logger.Warn().Str("code", "E_STORE_WAL").Msg(warning)
	}
	conn, err := openWriter(path)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	if err := migrate(conn, path, o); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", path, err), conn.Close())
	}
	s := newStore(dir, o)
	if err := s.openReaders(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", path, err), conn.Close())
	}
	s.writer.init(s, conn)
	s.task(s.checkpoints)
	return s, nil
}

// OpenReadOnly opens the store for reading beside a running server. Commits are refused.
func OpenReadOnly(dir string) (*Store, error) {
	path := filepath.Join(dir, FileName)
	have, warning, err := inspect(path, false)
	if errors.Is(err, os.ErrNotExist) || err == nil && have == 0 {
		err = storage.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	s := newStore(dir, Options{Clock: time.Now})
	s.warning = warning
	if err := s.openReaders(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return s, nil
}

func (s *Store) openReaders() error {
	db, err := sql.Open("sqlite3", dsn(s.path, readOptions))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(readers)
	db.SetMaxIdleConns(readers)
	s.read, s.reads = db, reads{q: db, bare: pool(db)}
	var head sql.NullInt64
	if err := db.QueryRowContext(context.Background(), lastPosition).Scan(&head); err != nil {
		return errors.Join(damage(err), db.Close())
	}
	s.head.Store(head.Int64)
	if err := s.keys.open(s.path); err != nil {
		return errors.Join(damage(err), db.Close())
	}
	return nil
}

// prepareFile makes the directory 0700 and the file 0600 before SQLite sees it: its other files copy the mode.
func prepareFile(dir, path string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		return f.Close()
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("E_STORE_FILE: %s is not a regular file; a link to a store can lose its journal", path)
	}
	return refuseLinks(dir, info)
}

// inspect looks at a file before anything may write to it: a newer store, another program's file or a damaged one is
// refused as it is. It gives the schema version, 0 for an empty file. With rollback set, SQLite may first undo what a cut
// left half done.
func inspect(path string, rollback bool) (have int64, warning string, err error) {
	info, err := os.Stat(path)
	if err != nil || info.Size() == 0 {
		return 0, "", err
	}
	if info.Size() < 512 { // SQLite would take it for empty
		return 0, "", fmt.Errorf("E_STORE_FILE: %w: %d bytes are no SQLite file", storage.ErrCorrupt, info.Size())
	}
	if warning, err = checkWAL(path + "-wal"); err != nil {
		return 0, "", err
	}
	have, err = versionBy(path, readOptions)
	if needsRollback(err) && rollback {
		have, err = versionBy(path, "_busy_timeout=5000")
	}
	if err == nil && have > Version {
		err = newer(have)
	}
	return have, warning, err
}

// needsRollback reports whether the making of the file was cut off before it had a write-ahead log: its rollback journal
// lies beside it, and only a connection that may write can undo what was half done.
func needsRollback(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && e.Code == sqlite3.ErrReadonly
}

// versionBy reads the schema version through a connection of its own.
func versionBy(path, options string) (have int64, err error) {
	c, err := (&sqlite3.SQLiteDriver{}).Open(dsn(path, options))
	if err != nil {
		return 0, damage(err)
	}
	conn, ok := c.(*sqlite3.SQLiteConn)
	if !ok {
		return 0, fmt.Errorf("driver gave a %T", c)
	}
	have, err = schemaVersion(conn)
	return have, errors.Join(err, conn.Close())
}

// connect opens a connection without database/sql, which costs more than the statement where a row is small.
func connect(name string) (*sqlite3.SQLiteConn, error) {
	c, err := (&sqlite3.SQLiteDriver{}).Open(name)
	if err != nil {
		return nil, damage(err)
	}
	conn, ok := c.(*sqlite3.SQLiteConn)
	if !ok {
		return nil, fmt.Errorf("driver gave a %T", c)
	}
	return conn, nil
}

func openWriter(path string) (*sqlite3.SQLiteConn, error) {
	conn, err := connect(dsn(path, writeOptions))
	if err != nil {
		return nil, err
	}
	for _, setting := range []string{"PRAGMA trusted_schema=OFF", "PRAGMA journal_size_limit=67108864", "PRAGMA cache_size=-16384"} {
		if _, err := conn.Exec(setting, nil); err != nil {
			return nil, errors.Join(damage(err), conn.Close())
		}
	}
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "5000", "foreign_keys": "1", "trusted_schema": "0"} {
		got, err := oneText(conn, "PRAGMA "+pragma)
		if err == nil && !strings.EqualFold(got, want) {
			err = fmt.Errorf("E_STORE_PRAGMA: %s is %s where %s is due", pragma, got, want)
		}
		if err != nil {
			return nil, errors.Join(damage(err), conn.Close())
		}
	}
	return conn, nil
}

// Close ends every subscription, stores what is waiting, checkpoints and closes the file.
func (s *Store) Close() error {
	var err error
	s.closed.Do(func() {
		s.joining.Lock()
		s.end()
		s.joining.Unlock()
		s.tasks.Wait()
		err = errors.Join(s.keys.close(), s.read.Close(), s.writer.close())
	})
	return err
}

// Head gives the position of the last committed row. A store that was opened for reading asks the file each time: the
// commits are another process's.
func (s *Store) Head() int64 {
	if s.writer.conn == nil {
		var head sql.NullInt64
		if err := s.read.QueryRow(lastPosition).Scan(&head); err == nil { //nolint:noctx // as quick as a load from memory
			return head.Int64
		}
	}
	return s.head.Load()
}

const lastPosition = `SELECT max(position) FROM events`

// damage names what SQLite says of a file that is no store or a broken one.
func damage(err error) error {
	var e sqlite3.Error
	if errors.As(err, &e) && (e.Code == sqlite3.ErrCorrupt || e.Code == sqlite3.ErrNotADB) {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	return err
}
