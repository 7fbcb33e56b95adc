package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mattn/go-sqlite3"

	"github.com/apollo-11/apollo/storage"
)

// Backup copies the store into a new file of mode 0600 while it is in use, and checks the copy. The copy is durable when it returns.
func (s *Store) Backup(_ context.Context, path string) error {
	c, err := (&sqlite3.SQLiteDriver{}).Open(dsn(s.path, "_busy_timeout=5000"))
	if err != nil {
		return fmt.Errorf("back up: %w", damage(err))
	}
	defer c.Close() //nolint:errcheck // the connection only read
	conn, ok := c.(*sqlite3.SQLiteConn)
	if !ok {
		return fmt.Errorf("back up: driver gave a %T", c)
	}
	if err := vacuumInto(conn, path); err != nil {
		return fmt.Errorf("back up to %s: %w", path, damage(err))
	}
	err = intact(path)
	if err == nil {
		err = syncFile(path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("back up to %s: %w", path, err), os.Remove(path))
	}
	return nil
}

// syncFile makes a file and its name durable.
func syncFile(path string) error {
	for _, name := range []string{path, filepath.Dir(path)} {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// intact runs SQLite's own check on a file.
func intact(path string) error {
	c, err := (&sqlite3.SQLiteDriver{}).Open(dsn(path, "mode=ro&_query_only=1"))
	if err != nil {
		return damage(err)
	}
	defer c.Close() //nolint:errcheck // the connection only read
	conn, ok := c.(*sqlite3.SQLiteConn)
	if !ok {
		return fmt.Errorf("driver gave a %T", c)
	}
	said, err := oneText(conn, "PRAGMA integrity_check")
	if err == nil && said != "ok" {
		err = fmt.Errorf("%w: %s", storage.ErrCorrupt, said)
	}
	return damage(err)
}
