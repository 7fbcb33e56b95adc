package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"sync"

	"github.com/mattn/go-sqlite3"

	"github.com/apollo-11/apollo/storage"
)

// keys tells whether an idempotency key was seen before. Every delivery asks, and nearly always the answer is no: it comes
// by a connection of its own, without database/sql.
type keys struct {
	mu   sync.Mutex
	conn *sqlite3.SQLiteConn
	seen *sqlite3.SQLiteStmt
	args [1]driver.NamedValue
}

func (k *keys) open(path string) (err error) {
	if k.conn, err = connect(dsn(path, readOptions)); err != nil {
		return err
	}
	if k.seen, err = compile(k.conn, `SELECT 1 FROM deliveries WHERE keyhash = ?`); err != nil {
		return errors.Join(err, k.conn.Close())
	}
	return nil
}

func (k *keys) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(k.seen.Close(), k.conn.Close())
}

func (k *keys) has(key []byte) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.args[0] = driver.NamedValue{Ordinal: 1, Value: key}
	rows, err := k.seen.QueryContext(context.Background(), k.args[:])
	if err != nil {
		return false, damage(err)
	}
	err = rows.Next(make([]driver.Value, 1))
	return err == nil, errors.Join(ignore(err, io.EOF), rows.Close())
}

func ignore(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}

// DeliveryByKey gives the first delivery with an idempotency key.
func (s *Store) DeliveryByKey(ctx context.Context, key storage.KeyHash) (storage.DeliveryRow, error) {
	seen, err := s.keys.has(key[:])
	if err == nil && !seen {
		err = storage.ErrNotFound
	}
	if err != nil {
		return storage.DeliveryRow{}, err
	}
	d, err := scanDelivery(s.q.QueryRowContext(ctx, `SELECT `+deliveryColumns+` FROM deliveries WHERE keyhash = ?`, key[:]))
	return d, missing(err, "delivery with key", key)
}
