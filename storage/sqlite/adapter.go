package sqlite

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// Schema and Offsets hold the SQL of the Pub/Sub for SQLite, behind watermill-sql's own contracts. Our subscriber runs
// it with no transaction open: watermill-sql's would keep one until the ack, which on SQLite stops every writer.
type (
	// Schema reads and writes messages. There is none of the topic up to After beyond the group's cursor.
	Schema struct {
		Batch int
		After int64
	}
	// Offsets keeps a cursor for each topic and consumer group.
	Offsets struct{}
)

var (
	_ wsql.SchemaAdapter  = Schema{}
	_ wsql.OffsetsAdapter = Offsets{}
)

// InsertQuery stores messages of a topic that has a number already.
func (Schema) InsertQuery(p wsql.InsertQueryParams) (wsql.Query, error) {
	q := wsql.Query{Query: `INSERT INTO events (topic, id, time, data, metadata, sum) SELECT t.id, m.column1, m.column2, m.column3, m.column4, m.column5 FROM topics t, (VALUES `}
	for i, msg := range p.Msgs {
		metadata, err := json.Marshal(msg.Metadata)
		if err != nil {
			return wsql.Query{}, fmt.Errorf("encode metadata: %w", err)
		}
		if i > 0 {
			q.Query += ", "
		}
		q.Query += "(?, ?, ?, ?, ?)"
		id, payload := []byte(msg.UUID), nonNil(msg.Payload)
		q.Args = append(q.Args, id, int64(0), payload, metadata, sumMessage(p.Topic, id, 0, payload, metadata))
	}
	q.Query += `) m WHERE t.name = ?`
	q.Args = append(q.Args, p.Topic)
	return q, nil
}

// SelectQuery gives the next messages of a topic after the group's cursor. An Apollo event type is a topic too.
func (s Schema) SelectQuery(p wsql.SelectQueryParams) (wsql.Query, error) {
	next, err := p.OffsetsAdapter.NextOffsetQuery(wsql.NextOffsetQueryParams{Topic: p.Topic, ConsumerGroup: p.ConsumerGroup})
	if err != nil {
		return wsql.Query{}, err
	}
	topic, number := `topic >= 1000 AND topic = (SELECT id FROM topics WHERE name = ?)`, any(p.Topic)
	if t, err := events.ParseType(p.Topic); err == nil {
		topic, number = `topic = ?`, int64(t)
	}
	return wsql.Query{Query: `SELECT position, ` + eventColumns + `, metadata, (SELECT data FROM events f WHERE f.stream = e.stream AND f.seq = 1)
		FROM events e WHERE ` + topic + ` AND position > max(?, coalesce((` + next.Query + `), 0)) ORDER BY position LIMIT ?`,
		Args: append(append([]any{number, s.After}, next.Args...), s.Batch)}, nil
}

// UnmarshalMessage reads one row: a stored message, or an event as its CloudEvents JSON.
func (Schema) UnmarshalMessage(p wsql.UnmarshalMessageParams) (wsql.Row, error) {
	var r wsql.Row
	var topic int64
	var seq sql.NullInt64
	var at int64
	var stream, id, cause, prev, data, metadata, first []byte
	if err := p.Row.Scan(&r.Offset, &topic, &stream, &seq, &id, &at, &cause, &prev, &data, &metadata, &first); err != nil {
		return r, fmt.Errorf("read message: %w", damage(err))
	}
	if stream != nil {
		e := storage.Sealed{Event: events.Event{Type: events.Type(topic), Sequence: uint64(seq.Int64), Time: at}, Encoded: data} //nolint:gosec // checked by the chain
		if !copyInto(e.Stream[:], stream) || !copyInto(e.ID[:], id) || !copyInto(e.Cause[:], cause) || !copyInto(e.Prev[:], prev) {
			return r, fmt.Errorf("%w: event row with fields of the wrong size", storage.ErrCorrupt)
		}
		return eventMessage(r, &e, first)
	}
	r.UUID, r.Payload, r.Metadata = id, data, metadata
	r.Msg = message.NewMessage(string(id), data)
	if err := json.Unmarshal(metadata, &r.Msg.Metadata); err != nil {
		return r, fmt.Errorf("read metadata: %w", err)
	}
	return r, nil
}

func eventMessage(r wsql.Row, e *storage.Sealed, first []byte) (wsql.Row, error) {
	var origin events.Data
	if err := errors.Join(e.Data.Decode(e.Encoded), origin.Decode(first)); err != nil {
		return r, fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	payload, err := e.CloudEvent(events.Origin{Pipeline: origin.Pipeline, Correlation: origin.Delivery, Trace: origin.Trace})
	if err != nil {
		return r, err
	}
	r.UUID, r.Payload = []byte(e.ID.String()), payload
	r.Msg = message.NewMessage(e.ID.String(), payload)
	r.Msg.Metadata.Set("type", e.Type.String())
	r.Msg.Metadata.Set("stream", e.Stream.String())
	return r, nil
}

// SchemaInitializingQueries gives the topic its number.
func (Schema) SchemaInitializingQueries(p wsql.SchemaInitializingQueriesParams) ([]wsql.Query, error) {
	return []wsql.Query{{Query: newTopic, Args: []any{p.Topic}}}, nil
}

// SubscribeIsolationLevel is SQLite's only one.
func (Schema) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelDefault }

// AckMessageQuery moves the group's cursor to the last row of the batch.
func (Offsets) AckMessageQuery(p wsql.AckMessageQueryParams) (wsql.Query, error) {
	return wsql.Query{Query: moveCursor, Args: []any{p.Topic, p.ConsumerGroup, p.LastRow.Offset, sumCursor(p.Topic, p.ConsumerGroup, p.LastRow.Offset)}}, nil
}

// ConsumedMessageQuery is not needed: the cursor moves with what the handlers produced.
func (Offsets) ConsumedMessageQuery(wsql.ConsumedMessageQueryParams) (wsql.Query, error) {
	return wsql.Query{}, nil
}

// NextOffsetQuery gives the group's cursor.
func (Offsets) NextOffsetQuery(p wsql.NextOffsetQueryParams) (wsql.Query, error) {
	return wsql.Query{Query: `SELECT position FROM cursors WHERE topic = ? AND grp = ?`, Args: []any{p.Topic, p.ConsumerGroup}}, nil
}

// SchemaInitializingQueries has nothing to do: the migrations made the table.
func (Offsets) SchemaInitializingQueries(wsql.OffsetsSchemaInitializingQueriesParams) ([]wsql.Query, error) {
	return nil, nil
}

// BeforeSubscribingQueries has nothing to do: a group without a cursor begins at the first message.
func (Offsets) BeforeSubscribingQueries(wsql.BeforeSubscribingQueriesParams) ([]wsql.Query, error) {
	return nil, nil
}
