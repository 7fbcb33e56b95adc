-- +goose Up
-- Instances of foreach stages stand after the plan's stages, numbered from 1 within their stage. A pending run may wait,
-- and a child run has a parent.
ALTER TABLE stages ADD COLUMN item INTEGER;
ALTER TABLE runs ADD COLUMN waits TEXT;
ALTER TABLE runs ADD COLUMN parent BLOB;
