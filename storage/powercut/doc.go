// Package powercut holds the tests that take the power away: a recorder below SQLite writes down all that a store does
// to its files, and every prefix of that log is what a disk may hold after a cut.
package powercut
