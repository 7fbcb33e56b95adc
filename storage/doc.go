// Package storage is the contract that every store keeps: one log that is also the queue, the state rows written with
// it in one commit, and the reads that the rest of Apollo needs. storage/sqlite and storage/postgres implement it,
// storage/storetest proves it, storage/artifacts keeps the bytes that are too long for the log.
package storage
