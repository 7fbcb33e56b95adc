package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/mattn/go-sqlite3"
)

// Backup copies the store into a new file of mode 0600 while it is in use, and checks the copy.
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
	if err := intact(path); err != nil {
		return errors.Join(fmt.Errorf("back up to %s: %w", path, err), os.Remove(path))
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
		err = errors.New(said)
	}
	return damage(err)
}
