package sqlite

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/apollo-11/apollo/storage"
)

const (
	insertPlan   = `INSERT INTO plans VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
	eventAt      = `SELECT id FROM events WHERE stream = ? AND seq = ?`
	newTopic     = `INSERT INTO topics (id, name) SELECT coalesce(max(id), 999) + 1, ? FROM topics WHERE true ON CONFLICT (name) DO NOTHING`
	insertOther  = `INSERT INTO events (position, topic, id, time, data, metadata, sum) VALUES (?, ?, ?, ?, ?, ?, ?)`
	insertResult = `INSERT INTO results VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET run = excluded.run, seq = excluded.seq WHERE ` + ofPruned
	insertParked = `INSERT INTO parked VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	moveCursor   = `INSERT INTO cursors VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET position = excluded.position, sum = excluded.sum`
)

// ofPruned holds for a result of a run that was pruned, which nobody can take over any more, or imported, which nobody here has
// seen made.
const ofPruned = `EXISTS (SELECT 1 FROM runs WHERE id = results.run AND (pruned IS NOT NULL OR imported IS NOT NULL))`

var (
	eventTable = table{columns: 10, insert: `INSERT OR ROLLBACK INTO events (position, topic, stream, seq, id, time, cause, prev, data, sum)`}
	runTable   = table{columns: 22, insert: `INSERT INTO runs (id, pipeline, plan, state, seq, head, delivery, forked, sample, kind, created, started, ended, stage, class, reason, waits, parent, imported, pruned, verified, findings)`,
		conflict: ` ON CONFLICT DO UPDATE SET state = excluded.state,
			waits = excluded.waits, seq = excluded.seq, head = excluded.head, started = excluded.started, ended = excluded.ended, stage = excluded.stage, class = excluded.class, reason = excluded.reason,
			imported = excluded.imported, pruned = excluded.pruned, verified = excluded.verified, findings = excluded.findings`}
	stageTable = table{columns: 12, insert: `INSERT INTO stages (run, idx, stage, state, attempt, waits, started, ended, due, class, reason, item)`,
		conflict: ` ON CONFLICT DO UPDATE SET state = excluded.state, attempt = excluded.attempt,
			waits = excluded.waits, started = excluded.started, ended = excluded.ended, due = excluded.due, class = excluded.class, reason = excluded.reason`}
	deliveryTable = table{columns: 14, insert: `INSERT INTO deliveries (id, kind, trigger, pipeline, key, keyhash, received, fate, run, first, code, reason, seq, head)`,
		conflict: ` ON CONFLICT (id) DO UPDATE SET fate = excluded.fate, run = excluded.run, code = excluded.code, reason = excluded.reason, keyhash = excluded.keyhash, seq = excluded.seq, head = excluded.head`}
)

// blob, text and number store the zero value as NULL: a byte in the row instead of the value.
func blob(b []byte) driver.Value {
	for _, c := range b {
		if c != 0 {
			return b
		}
	}
	return nil
}

func text[T ~string](s T) driver.Value {
	if s == "" {
		return nil
	}
	return string(s)
}

func number[T ~int | ~int64](n T) driver.Value {
	if n == 0 {
		return nil
	}
	return int64(n)
}

func (w *writer) bindRun(r *storage.RunRow) {
	w.bind(r.ID[:], r.Pipeline, r.Plan[:], int64(r.State), int64(r.Sequence), r.Head[:], blob(r.Delivery[:]), blob(r.Forked[:]), //nolint:gosec // small
		number(r.Sample), text(r.Kind), r.Created, number(r.Started), number(r.Ended), text(r.Stage), text(r.Class), text(r.Reason),
		text(r.Waits), blob(r.Parent[:]), number(r.Imported), number(r.Pruned), number(r.Verified), number(r.Findings))
}

func (w *writer) bindStage(s *storage.StageRow) {
	w.bind(s.Run[:], int64(s.Index), s.Stage, int64(s.State), int64(s.Attempt), text(s.Waits), number(s.Started),
		number(s.Ended), number(s.Due), text(s.Class), text(s.Reason), number(s.Item))
}

func (w *writer) bindDelivery(d *storage.DeliveryRow) {
	w.bind(d.ID[:], d.Kind, d.Trigger, d.Pipeline, text(d.Key), blob(d.KeyHash[:]), d.Received, d.Fate, blob(d.Run[:]),
		blob(d.First[:]), text(d.Code), text(d.Reason), int64(d.Sequence), d.Head[:]) //nolint:gosec // small
}

// message stores a Watermill message that is no Apollo event.
func (w *writer) message(o *storage.Outgoing) error {
	topic, err := w.topic(o.Topic)
	if err != nil {
		return err
	}
	metadata, err := json.Marshal(o.Message.Metadata)
	if err != nil {
		return fmt.Errorf("encode metadata: %w", err)
	}
	id, at, payload := []byte(o.Message.UUID), w.store.o.Clock().UnixNano(), nonNil(o.Message.Payload)
	w.position++
	return w.run(insertOther, w.position, topic, id, at, payload, metadata, sumMessage(o.Topic, id, at, payload, metadata))
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// topic gives the number of a Watermill topic, a new one for a new name. A rolled back transaction forgets it.
func (w *writer) topic(name string) (int64, error) {
	if n, ok := w.topics[name]; ok {
		return n, nil
	}
	if err := w.run(newTopic, name); err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(w.text(`SELECT id FROM topics WHERE name = ?`, name), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("topic %q: %w", name, err)
	}
	w.topics[name] = n
	return n, nil
}

func (w *writer) text(query string, args ...driver.Value) string {
	found, err := oneText(w.conn, query, args...)
	if err != nil {
		return err.Error()
	}
	return found
}
