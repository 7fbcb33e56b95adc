package sqlite

import "strconv"

// Lengths of the write-ahead log, as the pragma gives them.
var ShortLog, LongLog = strconv.Itoa(shortLog), strconv.Itoa(longLog)

// Checkpoint is what the timer calls.
func (s *Store) Checkpoint() error { return s.writer.checkpoint() }

// RunsQuery is the text of a list of runs.
var RunsQuery = runsQuery

// Pragma reads a setting of the writer's connection.
func (s *Store) Pragma(name string) (string, error) {
	s.writer.connLock.Lock()
	defer s.writer.connLock.Unlock()
	return oneText(s.writer.conn, "PRAGMA "+name)
}
