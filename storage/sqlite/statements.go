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
	appendEvent  = `INSERT INTO events (topic, stream, seq, id, time, cause, prev, data, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	eventAt      = `SELECT id FROM events WHERE stream = ? AND seq = ?`
	newTopic     = `INSERT INTO topics (id, name) SELECT coalesce(max(id), 999) + 1, ? FROM topics WHERE true ON CONFLICT (name) DO NOTHING`
	insertOther  = `INSERT INTO events (topic, id, time, data, metadata, sum) VALUES (?, ?, ?, ?, ?, ?)`
	insertParked = `INSERT INTO parked VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	moveCursor   = `INSERT INTO cursors VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET position = excluded.position, sum = excluded.sum`
	putRun       = `INSERT INTO runs (id, pipeline, plan, state, seq, head, delivery, forked, sample, kind, created, started, ended, stage, class, reason)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET state = excluded.state, seq = excluded.seq,
		head = excluded.head, started = excluded.started, ended = excluded.ended, stage = excluded.stage, class = excluded.class, reason = excluded.reason`
	putStage = `INSERT INTO stages (run, idx, stage, state, attempt, waits, started, ended, due, class, reason)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET state = excluded.state, attempt = excluded.attempt, waits = excluded.waits,
		started = excluded.started, ended = excluded.ended, due = excluded.due, class = excluded.class, reason = excluded.reason`
	endStage    = `UPDATE stages SET state = ?, ended = ?, class = ?, reason = ?, waits = NULL, due = NULL WHERE run = ? AND idx = ? AND attempt = ? AND state = 2`
	endRun      = `UPDATE runs SET state = ?, seq = ?, head = ?, ended = ?, stage = ?, class = ?, reason = ? WHERE id = ? AND state = 2`
	putDelivery = `INSERT INTO deliveries (id, kind, trigger, pipeline, key, keyhash, received, fate, run, first, code, reason, seq, head)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET fate = excluded.fate, run = excluded.run,
		code = excluded.code, reason = excluded.reason, seq = excluded.seq, head = excluded.head`
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

// runRow and stageRow write the usual end as a plain update: half the work of an insert that turns into one.
func (w *writer) runRow(r *storage.RunRow) error {
	if r.State.Terminal() {
		n, err := w.count(endRun, int64(r.State), int64(r.Sequence), r.Head[:], number(r.Ended), text(r.Stage), text(r.Class), text(r.Reason), r.ID[:]) //nolint:gosec // small
		if err != nil || n == 1 {
			return err
		}
	}
	return w.run(putRun, r.ID[:], r.Pipeline, r.Plan[:], int64(r.State), int64(r.Sequence), r.Head[:], blob(r.Delivery[:]), blob(r.Forked[:]), //nolint:gosec // small
		number(r.Sample), text(r.Kind), r.Created, number(r.Started), number(r.Ended), text(r.Stage), text(r.Class), text(r.Reason))
}

func (w *writer) stageRow(s *storage.StageRow) error {
	if s.State.Terminal() && s.Waits == "" && s.Due == 0 {
		n, err := w.count(endStage, int64(s.State), number(s.Ended), text(s.Class), text(s.Reason), s.Run[:], int64(s.Index), int64(s.Attempt))
		if err != nil || n == 1 {
			return err
		}
	}
	return w.run(putStage, s.Run[:], int64(s.Index), s.Stage, int64(s.State), int64(s.Attempt), text(s.Waits), number(s.Started),
		number(s.Ended), number(s.Due), text(s.Class), text(s.Reason))
}

func (w *writer) deliveryRow(d *storage.DeliveryRow) error {
	return w.run(putDelivery, d.ID[:], d.Kind, d.Trigger, d.Pipeline, text(d.Key), blob(d.KeyHash[:]), d.Received, d.Fate, blob(d.Run[:]),
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
	_, err = w.insert(insertOther, topic, id, at, payload, metadata, sumMessage(o.Topic, id, at, payload, metadata))
	return err
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
