// Package storetest holds what every storage.Store promises, as tests. An implementation's own tests call Run.
package storetest
