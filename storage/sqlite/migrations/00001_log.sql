-- +goose Up
CREATE TABLE topics (
    id   INTEGER PRIMARY KEY, -- 1000 and up: Watermill topics that are no Apollo events
    name TEXT NOT NULL UNIQUE
);

-- The log, which is also the queue.
CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    topic    INTEGER NOT NULL, -- number of the event type, or topics.id
    stream   BLOB,             -- run or delivery; NULL for other messages
    seq      INTEGER,
    id       BLOB NOT NULL,
    time     INTEGER NOT NULL,
    cause    BLOB,
    prev     BLOB,
    data     BLOB NOT NULL,
    metadata BLOB,
    sum      INTEGER NOT NULL, -- CRC-32C of the row: sums.go
    UNIQUE (stream, seq)
);
CREATE INDEX events_by_topic ON events (topic, position) WHERE topic >= 1000;

CREATE TABLE plans (
    digest   BLOB PRIMARY KEY,
    pipeline TEXT NOT NULL,
    bytes    BLOB NOT NULL
) WITHOUT ROWID;

-- States: 1 pending, 2 running, 3 completed, 4 failed, 5 cancelled, 6 skipped.
CREATE TABLE runs (
    id       BLOB PRIMARY KEY,
    pipeline TEXT NOT NULL,
    plan     BLOB NOT NULL,
    state    INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5),
    seq      INTEGER NOT NULL,
    head     BLOB NOT NULL,
    delivery BLOB,
    forked   BLOB,
    sample   INTEGER,
    kind     TEXT,
    created  INTEGER NOT NULL,
    started  INTEGER,
    ended    INTEGER,
    stage    TEXT,
    class    TEXT,
    reason   TEXT,
    CHECK ((state >= 3) = (ended IS NOT NULL))
) WITHOUT ROWID;
CREATE INDEX runs_unfinished ON runs (id) WHERE state <= 2;
CREATE INDEX runs_ended ON runs (pipeline, id) WHERE state >= 3;
CREATE INDEX runs_not_completed ON runs (state, id) WHERE state > 3;

CREATE TABLE stages (
    run     BLOB NOT NULL,
    idx     INTEGER NOT NULL,
    stage   TEXT NOT NULL,
    state   INTEGER NOT NULL CHECK (state BETWEEN 1 AND 6),
    attempt INTEGER NOT NULL,
    waits   TEXT,
    started INTEGER,
    ended   INTEGER,
    due     INTEGER,
    class   TEXT,
    reason  TEXT,
    PRIMARY KEY (run, idx),
    CHECK ((state >= 3) = (ended IS NOT NULL)),
    CHECK (state <> 2 OR (attempt > 0 AND started IS NOT NULL))
) WITHOUT ROWID;

CREATE TABLE deliveries (
    id       BLOB PRIMARY KEY,
    kind     TEXT NOT NULL,
    trigger  TEXT NOT NULL,
    pipeline TEXT NOT NULL,
    key      TEXT,
    keyhash  BLOB,
    received INTEGER NOT NULL,
    fate     TEXT NOT NULL CHECK (fate IN ('run', 'duplicate', 'rejected', 'held', 'ignored')),
    run      BLOB,
    first    BLOB,
    code     TEXT,
    reason   TEXT,
    seq      INTEGER NOT NULL,
    head     BLOB NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX deliveries_by_key ON deliveries (keyhash) WHERE keyhash IS NOT NULL;

CREATE TABLE parked (
    event   BLOB NOT NULL,
    stream  BLOB NOT NULL,
    handler TEXT NOT NULL,
    reason  TEXT NOT NULL,
    at      INTEGER NOT NULL,
    sum     INTEGER NOT NULL,
    PRIMARY KEY (event, handler)
) WITHOUT ROWID;

CREATE TABLE cursors (
    topic    TEXT NOT NULL,
    grp      TEXT NOT NULL,
    position INTEGER NOT NULL,
    sum      INTEGER NOT NULL,
    PRIMARY KEY (topic, grp)
) WITHOUT ROWID;

-- What has ended stays as it ended; a failed run or stage may only go back to pending, when it is resumed.
-- +goose StatementBegin
CREATE TRIGGER runs_move BEFORE UPDATE OF state ON runs
WHEN old.state >= 3 AND new.state <> old.state AND NOT (old.state = 4 AND new.state <= 5)
BEGIN SELECT RAISE(ABORT, 'E_INVARIANT: a run that has ended does not move'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER stages_move BEFORE UPDATE OF state ON stages
WHEN old.state IN (3) AND new.state <> old.state
BEGIN SELECT RAISE(ABORT, 'E_INVARIANT: a stage that has completed does not move'); END;
-- +goose StatementEnd

-- An event is never changed and never removed.
-- +goose StatementBegin
CREATE TRIGGER events_stay BEFORE UPDATE ON events WHEN old.stream IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'E_INVARIANT: an event does not change'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER events_remain BEFORE DELETE ON events WHEN old.stream IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'E_INVARIANT: an event is not removed'); END;
-- +goose StatementEnd
