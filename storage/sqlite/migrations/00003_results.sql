-- +goose Up
-- What became of a run after its end, and the first result of each stage key that other runs may take over.
ALTER TABLE runs ADD COLUMN imported INTEGER;
ALTER TABLE runs ADD COLUMN pruned INTEGER;
ALTER TABLE runs ADD COLUMN verified INTEGER;
ALTER TABLE runs ADD COLUMN findings INTEGER;
CREATE TABLE results (
    key BLOB PRIMARY KEY, -- SHA-256 of the pins document
    run BLOB NOT NULL,
    seq INTEGER NOT NULL  -- of the event that completed the stage
) WITHOUT ROWID;
