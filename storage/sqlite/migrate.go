package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/mattn/go-sqlite3"
	"github.com/pressly/goose/v3"

	"github.com/apollo-11/apollo/storage"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Version is the schema version that this build reads and writes: the number of its newest migration.
const Version = 3

const readVersion = `SELECT max(version_id) FROM goose_db_version WHERE is_applied`

// migrate brings the schema to Version. A current schema costs one query.
func migrate(conn *sqlite3.SQLiteConn, path string, o Options) error {
	have, err := schemaVersion(conn)
	switch {
	case err != nil:
		return err
	case have == Version:
		return nil
	case have > Version:
		return newer(have)
	case have > 0:
		backup := fmt.Sprintf("%s.v%d.bak", path, have)
		if err := vacuumInto(conn, backup); err != nil {
			return fmt.Errorf("back up before the upgrade: %w", err)
		}
		o.Logger.Info().Str("backup", backup).Int64("from", have).Int("to", Version).Msg("upgrading the schema")
	}
	return upgrade(path)
}

func upgrade(path string) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite3", dsn(path, writeOptions))
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return errors.Join(err, db.Close())
	}
	_, err = provider.Up(context.Background())
	return errors.Join(err, provider.Close())
}

// schemaVersion gives 0 for an empty file.
func schemaVersion(conn *sqlite3.SQLiteConn) (int64, error) {
	var have int64
	found := false
	err := each(conn, readVersion, func(row []driver.Value) error {
		have, found = row[0].(int64)
		return nil
	})
	if err != nil && strings.Contains(err.Error(), "no such table") {
		tables, err := oneText(conn, `SELECT count(*) FROM sqlite_schema`)
		if err == nil && tables != "0" {
			err = fmt.Errorf("E_STORE_FILE: %w: a SQLite file, but not Apollo's", storage.ErrCorrupt)
		}
		return 0, err
	}
	if err == nil && !found {
		err = fmt.Errorf("E_STORE_FILE: %w: no schema version", storage.ErrCorrupt)
	}
	return have, damage(err)
}

func newer(have int64) error {
	return fmt.Errorf("%w: schema %d, this build knows %d", storage.ErrNewer, have, Version)
}

// vacuumInto copies the store into a new file of mode 0600.
func vacuumInto(conn *sqlite3.SQLiteConn, to string) error {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if _, err := conn.Exec("VACUUM INTO ?", []driver.Value{to}); err != nil {
		return errors.Join(err, os.Remove(to))
	}
	return nil
}

// each walks the rows of a query on the raw connection.
func each(conn *sqlite3.SQLiteConn, query string, row func([]driver.Value) error, args ...driver.Value) error {
	rows, err := conn.Query(query, args)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // it can only repeat what Next said
	values := make([]driver.Value, len(rows.Columns()))
	for {
		switch err := rows.Next(values); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := row(values); err != nil {
			return err
		}
	}
}

func oneText(conn *sqlite3.SQLiteConn, query string, args ...driver.Value) (text string, err error) {
	err = each(conn, query, func(row []driver.Value) error {
		if text == "" {
			text = fmt.Sprint(row[0])
			if b, ok := row[0].([]byte); ok {
				text = string(b)
			}
		}
		return nil
	}, args...)
	return text, err
}
