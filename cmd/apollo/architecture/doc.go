// Package architecture holds the tests that keep the shape of the source tree: who may import whom, how long code may get,
// that exported names and packages are explained, and what may stand at the top level. Nothing imports it.
package architecture
